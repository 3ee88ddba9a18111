from __future__ import annotations

from sqlalchemy.orm import Session

from domain.records import ImportedRecord, ImportState, Provenance
from domain.tuning_tasks import Coverage
from storage import convergence, imports, record_pages, records, tuning_tasks
from storage.database import Database
from storage.record_filters import RecordFilter
from storage.tables import workload_digest
from tests.support.storage.factories import PLACED, PLACEMENT, TARGET, imported, key, record
from tests.unit.storage.test_records import plans


def untried(session: Session, owner: str = "local", most: int = 9) -> list[ImportedRecord]:
    found = imports.candidates(session, ["dense", "conv"], owner=owner, tuner="autotvm", most=most, **PLACED)
    return [each for some in found.values() for each in some]


def test_an_import_is_stored_where_nobody_measured_the_schedule(session: Session) -> None:
    records.add(session, [record("dense", 1e-3, schedule="a")])
    brought = [imported("dense", 1e-3, schedule=schedule) for schedule in "abc"]
    brought.append(imported("dense", 1e-3, schedule="a", target="another"))
    assert imports.add_unknown(session, brought) == 3
    assert imports.add_unknown(session, brought) == 0
    assert imports.add_unknown(session, [imported("dense", 1e-3, schedule="b", owner="ann")]) == 1


def test_what_is_claimed_counts_as_nothing(session: Session) -> None:
    records.add(session, [record("dense", 5e-3, schedule="slow")])
    imports.add_unknown(session, [imported("dense", 1e-12, schedule=str(number)) for number in range(50)])
    assert records.best(session, key("dense")) == record("dense", 5e-3, schedule="slow")
    assert records.counts_of_many(session, ["dense"], **PLACED) == {"dense": 1}
    assert len(records.of_key(session, key("dense"))) == 1
    assert tuning_tasks.coverage(session, ["dense"], **PLACED) == {"dense": Coverage(trials=1, best_latency=5e-3)}
    digest = workload_digest("dense")
    assert convergence.best_before(session, [digest], PLACEMENT, record_id=2**62) == {digest: 5e-3}
    assert records.passed_over(session, ["dense"], **(PLACED | {"target": "another"})) == {"target": 1}
    (summary,) = record_pages.read(session)
    assert (summary.trials, summary.best_latency) == (1, 5e-3)


def test_candidates_are_their_owner_s_untried_ones_in_the_order_of_claims(session: Session) -> None:
    mine = [imported("dense", seconds, schedule=f"{seconds}") for seconds in (3e-3, 1e-3, 2e-3)]
    others = [imported("dense", 1e-9, schedule="x", owner="ann"), imported("dense", 1e-9, schedule="y", tuner="ansor")]
    places = [imported("dense", 1e-9, schedule="z", **{name: "another"}) for name in PLACED]
    imports.add_unknown(session, [*mine, *others, *places, imported("dense", schedule="failed")])
    assert [each.schedule for each in untried(session)] == ["0.001", "0.002", "0.003"]
    assert [each.schedule for each in untried(session, most=2)] == ["0.001", "0.002"]
    assert untried(session, "nobody") == []
    first, second, third = untried(session)
    assert imports.settle(session, first.id, ImportState.MEASURED, owner="local", job_id="j-1")
    assert not imports.settle(session, first.id, ImportState.FAILED, owner="local", job_id="j-2")
    assert not imports.settle(session, second.id, ImportState.FAILED, owner="ann", job_id="j-1")
    assert imports.settle(session, second.id, ImportState.REJECTED, owner="local", job_id="j-1", message="no such tile")
    assert untried(session) == [third]
    assert imports.tried_by(session, "j-1", key("dense"), owner="local", tuner="autotvm") == 1
    (rejected,), _ = record_pages.page(
        session, RecordFilter(provenance=Provenance.IMPORTED, state=ImportState.REJECTED), limit=9
    )
    assert isinstance(rejected, ImportedRecord)
    assert (rejected.message, rejected.job_id) == ("no such tile", "j-1")


def test_an_invalidated_import_stays_away_and_a_deleted_one_may_come_back(session: Session) -> None:
    brought = [imported("dense", 1e-3, schedule="a"), imported("conv", 1e-3, schedule="b")]
    imports.add_unknown(session, [*brought, imported("dense", 1e-3, schedule="a", owner="ann")])
    assert imports.invalidate(session, RecordFilter(owner="local", workload_key="dense")) == 1
    assert [each.schedule for each in untried(session)] == ["b"]
    assert len(untried(session, "ann")) == 1
    assert imports.add_unknown(session, brought) == 0
    assert imports.remove(session, RecordFilter(owner="local")) == 2
    assert imports.add_unknown(session, brought) == 2
    assert imports.remove(session, RecordFilter(tuner="autotvm", target=TARGET.text)) == 3


def test_a_measured_import_is_not_invalidated(session: Session) -> None:
    imports.add_unknown(session, [imported("dense", 1e-3)])
    imports.settle(session, untried(session)[0].id, ImportState.MEASURED, owner="local", job_id="j-1")
    assert imports.invalidate(session, RecordFilter(owner="local")) == 0


def test_pages_go_on_from_measured_to_imported_records(session: Session) -> None:
    records.add(session, [record("dense", 1e-3, schedule=each) for each in "abc"])
    imports.add_unknown(session, [imported("dense", 1e-3, schedule=each) for each in "de"])
    imports.add_unknown(session, [imported("dense", 1e-3, schedule="f", owner="ann")])
    for owner, expected in (("local", "abcde"), (None, "abcdef"), ("nobody", "abc")):
        for limit in (1, 2, 3, 4, 10):
            found, token = "", None
            while True:
                wanted = RecordFilter(provenance=None, owner=owner)
                page, token = record_pages.page(session, wanted, limit=limit, page_token=token)
                assert len(page) <= limit
                found += "".join(each.schedule for each in page)
                if token is None:
                    break
            assert found == expected


def test_imports_are_counted_by_owner_place_and_state(session: Session) -> None:
    imports.add_unknown(session, [imported("dense", 1e-3, schedule=each) for each in "ab"])
    imports.add_unknown(session, [imported("dense", 1e-3, schedule="c", owner="ann")])
    imports.settle(session, untried(session)[0].id, ImportState.FAILED, owner="local", job_id="j-1")
    (found,) = imports.summaries(session, owner="local")
    assert (found.owner, found.states) == ("local", {ImportState.UNTRIED: 1, ImportState.FAILED: 1})
    assert [each.owner for each in imports.summaries(session, owner=None)] == ["ann", "local"]


def test_junk_slows_no_lookup(sqlite_database: Database) -> None:
    steps = plans(sqlite_database, lambda session: untried(session))
    assert any("ix_imported_records_candidates (owner=? AND workload_digest=?" in step for step in steps), steps
    assert not any("TEMP B-TREE" in step or step.startswith("SCAN") for step in steps), steps
