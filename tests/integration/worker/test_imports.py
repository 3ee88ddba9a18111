"""What callers import is measured before anything believes it, within bounds, and by their own jobs only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from domain import errors
from domain.artifacts import Variant
from domain.jobs import RunnerKind, Tuner
from domain.records import ImportedRecord, ImportState, Provenance, Record, RecordKey, TrialError
from domain.stage_results import PlanResult
from storage import imports, record_pages
from storage.record_filters import RecordFilter
from storage.tables import RecordRow, TuningTaskRow, digest_of
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import refusing
from worker import clock
from worker.pipeline.search.candidates import MOST_TRIALS

CONV, DENSE = '["conv"]', '["dense"]'


def run(bench: Bench, **request: Any) -> str:
    return bench.succeed(**{"tuner": Tuner.AUTOTVM, **request})


@pytest.fixture
def place(bench: Bench) -> Record:
    """Any record of where jobs run, of somebody else's model."""
    bench.script.tasks = ("pool",)
    job_id = run(bench, content=b"a small model", trials=8)
    bench.script.tasks = ("conv", "dense")
    bench.script.requests.clear()
    bench.script.measured.clear()
    return bench.records(job_id)[0]


def bring(
    bench: Bench, place: Record, *indices: int, workload: str = CONV, seconds: float = 1e-12, owner: str = "local"
) -> None:
    """Import schedules of these indices, each of which claims to be faster than the one before."""
    brought = [
        ImportedRecord(
            key=RecordKey(workload_key=workload, **place.key.place),
            tuner="autotvm",
            schedule=json.dumps({"key": workload, "index": index, "result": [[seconds], 0, 0.0, 0.0]}),
            schedule_digest=digest_of(f"{workload}{index}"),
            latencies=(seconds * (1 - number / (2 * len(indices))),),
            error=None,
            finished_at=clock.now(),
            owner=owner,
            imported_at=clock.now(),
        )
        for number, index in enumerate(indices)
    ]
    with bench.database.transaction() as session:
        assert imports.add_unknown(session, brought) == len(indices)


def states(bench: Bench, owner: str | None = None) -> dict[int, ImportState]:
    """By index of the schedule."""
    wanted = RecordFilter(provenance=Provenance.IMPORTED, owner=owner)
    with bench.database.reading() as session:
        found, _ = record_pages.page(session, wanted, limit=20_000)
    return {json.loads(each.schedule)["index"]: each.state for each in found if isinstance(each, ImportedRecord)}


def indices(bench: Bench, job_id: str) -> list[int]:
    return [json.loads(record.schedule)["index"] for record in bench.records(job_id) if record.key.workload_key == CONV]


def outcome(bench: Bench, job_id: str) -> tuple[int, float | None, float]:
    """Trials, the best latency of the first task, and the gain."""
    return (
        len(bench.records(job_id)),
        bench.tasks(job_id)[0].best_latency,
        bench.report(job_id).speedup_over_untuned,
    )


@pytest.mark.parametrize("indices_", [range(5000, 5300), range(300)], ids=["nonsense", "slow"])
def test_what_one_owner_imports_changes_nothing_for_another(bench: Bench, place: Record, indices_: range) -> None:
    """Nonsense knobs that claim 1 ps, and valid slow schedules that claim 1 ns."""
    for workload in (CONV, DENSE):
        bring(bench, place, *indices_, workload=workload, seconds=1e-12, owner="mallory")
    victim = run(bench, owner="victim", trials=32)
    plan = bench.result(victim, PlanResult)
    assert (plan.covered, plan.trials_planned, plan.trials_on_record) == (0, 32, 0)
    assert set(states(bench).values()) == {ImportState.UNTRIED}
    assert all(params.get("candidates") is None for params in bench.script.asked("tune"))
    assert indices(bench, victim) == list(range(16))
    assert bench.report(victim).published is Variant.TUNED
    assert bench.tasks(victim)[0].best_latency == pytest.approx(1e-3 / 16)


def test_nonsense_costs_its_own_importer_no_trial(bench: Bench, place: Record) -> None:
    bring(bench, place, *range(5000, 15_000))
    job_id = run(bench, trials=32)
    assert outcome(bench, job_id) == (32, pytest.approx(1e-3 / 16), pytest.approx(2.0, rel=0.1))
    assert indices(bench, job_id) == list(range(16))
    rejected = [index for index, state in states(bench).items() if state is ImportState.REJECTED]
    assert 0 < len(rejected) <= 2 * 8, "two rounds, of four checks for each of two trials"
    assert bench.report(job_id).published is Variant.TUNED


def test_slow_ones_that_claim_a_nanosecond_cost_a_bounded_part_and_no_gain(bench: Bench, place: Record) -> None:
    bench.script.tasks = ("conv",)
    before = run(bench, owner="before", trials=64)
    with bench.database.transaction() as session:
        # As if the first job had never been.
        session.execute(delete(RecordRow))
        session.execute(update(TuningTaskRow).values(effort_trials=None, effort_seconds=None))
    bench.script.slow_schedules = frozenset(range(100, 1000))
    bring(bench, place, *range(100, 1000), seconds=1e-9)
    job_id = run(bench, trials=64, content=b"another model")
    assert bench.report(job_id).published is bench.report(before).published is Variant.TUNED
    found = indices(bench, job_id)
    assert len(found) == 64, "trials are spent as without the import"
    assert found[0] == 0, "the untuned build's schedule is measured first"
    assert list(states(bench).values()).count(ImportState.MEASURED) == MOST_TRIALS
    assert bench.tasks(job_id)[0].best_latency == pytest.approx(1e-3 / 56)


def test_a_good_import_is_measured_first_and_then_counts_for_everybody(bench: Bench, place: Record) -> None:
    bring(bench, place, 700, 800)
    job_id = run(bench, trials=16)
    assert indices(bench, job_id)[:3] == [0, 800, 700], "by their claims"
    assert states(bench) == {700: ImportState.MEASURED, 800: ImportState.MEASURED}
    best = min(bench.records(job_id), key=lambda record: record.latency or 1)
    assert (best.latency, best.job_id) == (pytest.approx(1e-3 / 801), job_id), "ours, not the claimed one"
    assert best.worker_id.startswith("elsewhere:")
    other = run(bench, owner="ann", trials=16)
    assert bench.records(other) == []
    assert bench.tasks(other)[0].best_latency == best.latency
    assert any("imported schedules are measured first" in note for note in bench.notes(job_id))


def test_a_candidate_that_fails_is_not_tried_again(bench: Bench, place: Record) -> None:
    bench.script.failing_schedules = frozenset({800})
    bring(bench, place, 800)
    job_id = run(bench, trials=16)
    assert states(bench) == {800: ImportState.FAILED}
    assert [record.error for record in bench.records(job_id) if record.error] == ["build_error"]
    again = run(bench, trials=64)
    assert 800 not in indices(bench, again)


def test_a_candidate_whose_check_kills_the_engine_is_checked_once(bench: Bench, place: Record) -> None:
    bench.script.crashing_candidates = frozenset({800})
    bring(bench, place, 700, 800)
    job_id = run(bench, trials=16)
    assert states(bench) == {700: ImportState.MEASURED, 800: ImportState.REJECTED}
    assert len(indices(bench, job_id)) == 8


def test_what_was_measured_meanwhile_is_known(bench: Bench, place: Record) -> None:
    bring(bench, place, 3)
    first = run(bench, owner="ann", trials=16)
    assert 3 in indices(bench, first)
    run(bench, trials=64)
    assert states(bench) == {3: ImportState.MEASURED}


def test_an_invalidated_import_is_not_tried(bench: Bench, place: Record) -> None:
    bring(bench, place, 800)
    with bench.database.transaction() as session:
        assert imports.invalidate(session, RecordFilter(owner="local")) == 1
    assert 800 not in indices(bench, run(bench, trials=16))


def compiled(bench: Bench) -> list[dict[str, int]]:
    """From now on: the schedule of each task that every build tries, by workload."""
    found: list[dict[str, int]] = []

    def note(method: str, params: dict[str, Any]) -> None:
        if method == "compile" and params["tuner"]:
            lines = Path(params["records"]).read_text().splitlines() if params["records"] else []
            found.append({row["key"]: row["index"] for row in map(json.loads, reversed(lines))})

    bench.script.refuse = note
    return found


def valid(bench: Bench, job_id: str, workload: str) -> list[int]:
    """Schedules of a job that are on record as valid, the fastest first."""
    found = [each for each in bench.records(job_id) if each.key.workload_key == workload and each.latency]
    return [json.loads(each.schedule)["index"] for each in sorted(found, key=lambda each: each.latency or 0)]


def test_a_build_that_fails_falls_back_to_the_next_best_record(bench: Bench) -> None:
    bench.script.tasks = ("a", "b", "c", "d", "e")
    bench.script.unbuildable = frozenset({('["c"]', 7), ('["c"]', 6), ('["e"]', 7)})
    tried = compiled(bench)
    job_id = run(bench, trials=40)
    assert bench.report(job_id).published is Variant.TUNED
    assert tried[-1] == {'["a"]': 7, '["b"]': 7, '["c"]': 5, '["d"]': 7, '["e"]': 6}
    assert (valid(bench, job_id, '["c"]')[0], valid(bench, job_id, '["e"]')[0]) == (5, 6)
    failed = [each for each in bench.records(job_id) if each.error is TrialError.BUILD_ERROR]
    assert len(failed) == 3
    assert all("cannot be built with it: TVM cannot compile the model" in (each.error_message or "") for each in failed)
    assert sum("was left out" in note for note in bench.notes(job_id)) == 3
    tried.clear()
    run(bench, trials=40)
    assert tried[0] == {'["a"]': 7, '["b"]': 7, '["c"]': 5, '["d"]': 7, '["e"]': 6}, "it is not picked again"


def test_records_of_others_are_left_out_but_stay(bench: Bench) -> None:
    job_id = run(bench, trials=16, owner="ann")
    bench.script.unbuildable = frozenset({(CONV, 7)})
    tried = compiled(bench)
    assert bench.report(run(bench, trials=16, owner="bob")).published is Variant.TUNED
    assert tried[-1] == {CONV: 6, DENSE: 7}
    assert valid(bench, job_id, CONV)[0] == 7


def test_a_build_that_fails_without_records_blames_none(bench: Bench) -> None:
    error = errors.EngineRequestFailed("compile_failed", "out of registers")
    bench.script.refuse = refusing("compile", error, tuner="autotvm")
    job_id = run(bench, trials=16)
    assert not any("was left out" in note for note in bench.notes(job_id))
    assert len(valid(bench, job_id, CONV)) == 8


def test_imports_that_cannot_be_built_fall_back_where_nothing_is_measured(bench: Bench, place: Record) -> None:
    bring(bench, place, 100, 200, 300)
    bench.script.unbuildable = frozenset({(CONV, 300)})
    tried = compiled(bench)
    run(bench, runner=RunnerKind.NONE)
    assert tried[-1] == {CONV: 200}
    assert states(bench) == {100: ImportState.UNTRIED, 200: ImportState.UNTRIED, 300: ImportState.FAILED}


def test_a_job_that_measures_nothing_uses_its_owner_s_imports_where_nothing_is_measured(
    bench: Bench, place: Record
) -> None:
    run(bench, trials=16)
    bring(bench, place, 900)
    bench.script.tasks = ("conv", "head")
    bring(bench, place, 800, workload='["head"]')
    bring(bench, place, 850, workload='["head"]', owner="ann")
    used: list[list[tuple[str, int]]] = []

    def note(method: str, params: dict[str, Any]) -> None:
        if method == "compile" and params["records"]:
            lines = [json.loads(line) for line in Path(params["records"]).read_text().splitlines()]
            used.append([(line["key"], line["index"]) for line in lines])

    bench.script.refuse = note
    job_id = run(bench, content=b"a third model", runner=RunnerKind.NONE)
    assert used
    assert dict(reversed(used[0])) == {CONV: 7, '["head"]': 800}
    assert (CONV, 900) not in used[0]
    assert ('["head"]', 850) not in used[0]
    assert not bench.artifact(job_id).verified
    used.clear()
    other = run(bench, content=b"a third model", runner=RunnerKind.NONE, owner="bob")
    assert not any('["head"]' in key for lines in used for key, _ in lines)
    assert not bench.artifact(other).verified
