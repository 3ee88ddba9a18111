"""Attacks by imported records, over real engines: nonsense that claims 1 ps, valid schedules that claim 1 ns."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import delete, update

from domain.artifacts import Variant
from domain.jobs import RunnerKind, Tuner
from domain.records import ImportedRecord, ImportState, Provenance, Record
from storage import imports, record_pages
from storage.record_filters import RecordFilter
from storage.tables import RecordRow, TuningTaskRow
from tests.contract.worker.test_real_engines import run
from tests.support.worker.fixtures import Bench
from tuner.native import autotvm

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("real_engines")]

PICOSECOND, NANOSECOND = 1e-12, 1e-9


def claiming(record: Record, seconds: float, *, owner: str, nonsense: bool = False) -> ImportedRecord:
    line = json.loads(record.schedule)
    line["result"][0] = [seconds]
    for knob in line["config"]["entity"] if nonsense else ():
        if knob[1] == "sp":
            knob[2] = [-1, 12345]
    read = autotvm.read(json.dumps(line))
    return ImportedRecord(
        key=record.key,
        tuner=record.tuner,
        schedule=read.schedule,
        schedule_digest=read.schedule_digest,
        latencies=read.latencies,
        error=None,
        finished_at=record.finished_at,
        owner=owner,
        imported_at=record.finished_at,
    )


def imported(bench: Bench, owner: str) -> list[ImportedRecord]:
    wanted = RecordFilter(provenance=Provenance.IMPORTED, owner=owner)
    with bench.database.reading() as session:
        found, _ = record_pages.page(session, wanted, limit=1000)
    return [each for each in found if isinstance(each, ImportedRecord)]


@pytest.mark.timeout(600)
def test_claims_neither_spend_a_budget_nor_spare_one(bench: Bench) -> None:
    first, _ = run(bench, tuner=Tuner.AUTOTVM)
    measured = [record for record in bench.records(first) if record.error is None]
    slow = [claiming(record, NANOSECOND, owner="mallory") for record in measured]
    junk = [claiming(record, PICOSECOND, owner="mallory", nonsense=True) for record in measured]
    with bench.database.transaction() as session:
        # As if nobody had measured anything.
        session.execute(delete(RecordRow))
        session.execute(update(TuningTaskRow).values(effort_trials=None, effort_seconds=None))
        assert imports.add_unknown(session, [*slow, *junk]) >= len(slow) + 1

    victim, artifact = run(bench, tuner=Tuner.AUTOTVM, owner="victim")
    assert len(bench.records(victim)) == 8
    assert {each.state for each in imported(bench, "mallory")} == {ImportState.UNTRIED}
    assert min(min(record.latencies) for record in bench.records(victim) if record.latencies) > 1e-7
    assert artifact.report.verifications[Variant.TUNED].passed

    with bench.database.transaction() as session:
        session.execute(delete(RecordRow))
        session.execute(update(TuningTaskRow).values(effort_trials=None, effort_seconds=None))
    own, artifact = run(bench, tuner=Tuner.AUTOTVM, owner="mallory")
    states = {each.id: each.state for each in imported(bench, "mallory")}
    nonsense = {each.id for each in imported(bench, "mallory") if each.latencies == (PICOSECOND,)}
    assert {states[each] for each in nonsense} <= {ImportState.REJECTED, ImportState.UNTRIED}
    assert ImportState.REJECTED in states.values()
    assert ImportState.MEASURED in states.values()
    assert len(bench.records(own)) == 8, "what is rejected costs no trial"
    assert min(min(record.latencies) for record in bench.records(own) if record.latencies) > 1e-7
    assert artifact.report.verifications[Variant.TUNED].passed

    with bench.database.transaction() as session:
        session.execute(delete(RecordRow))
        found = {record.key.workload_key: record for record in measured}.values()
        imports.add_unknown(session, [claiming(record, NANOSECOND, owner="ann") for record in found])
        imports.add_unknown(session, [claiming(record, PICOSECOND, owner="ann", nonsense=True) for record in found])
    _, artifact = run(bench, tuner=Tuner.AUTOTVM, owner="ann", runner=RunnerKind.NONE)
    assert (artifact.verified, artifact.report.published) == (False, Variant.TUNED)
