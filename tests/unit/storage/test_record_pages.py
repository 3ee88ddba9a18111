from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from domain import errors
from domain.records import TrialError
from storage import record_pages, records, tuning_tasks
from storage.database import Database
from storage.record_filters import RecordFilter
from storage.record_pages import PlaceKey
from tests.support.storage.factories import DEVICE, PLACED, TARGET, TOOLCHAIN, add_job, key, record, task
from tests.unit.storage.test_records import many_records, plans

__all__ = ["many_records"]


def test_stale_records_are_counted_by_what_sets_them_apart(session: Session) -> None:
    elsewhere = [
        {"target": "another"},
        {"device_key": "another"},
        {"device_key": "another", "target": "another"},
        {"toolchain": "another"},
        {"toolchain": "another", "device_key": "another", "target": "another"},
        {"toolchain": "a third"},
    ]
    stale = [record("dense", 1e-3, schedule=str(place), **changes) for place, changes in enumerate(elsewhere)]
    records.add(session, [*stale, record("dense", 1e-3, schedule="mine"), record("pool", 1e-3, target="another")])
    assert records.passed_over(session, ["dense", "conv"], **PLACED) == {"target": 1, "device": 2, "toolchain": 3}
    assert records.passed_over(session, ["conv"], **PLACED) == {}
    assert records.best(session, key("dense")) == record("dense", 1e-3, schedule="mine")


@pytest.fixture
def stored(session: Session) -> Session:
    found = [
        record("dense", 1e-3 * (5 - number), schedule=str(number), job_id=f"j-{number % 2}", trial_number=number)
        for number in range(5)
    ]
    records.add(session, [*found, record("dense", schedule="e", error=TrialError.RUN_ERROR, job_id="j-1")])
    records.add(session, [record("conv", 1e-3, schedule="c", tuner="ansor", target="another")])
    return session


@pytest.mark.parametrize(
    ("wanted", "schedules"),
    [
        (RecordFilter(), "01234ec"),
        (RecordFilter(workload_key="dense"), "01234e"),
        (RecordFilter(valid_only=True), "01234c"),
        (RecordFilter(tuner="ansor"), "c"),
        (RecordFilter(target="another"), "c"),
        (RecordFilter(target=TARGET.identity, job_id="j-1"), "13e"),
        (RecordFilter(device_key="another"), ""),
        (RecordFilter(toolchain="another"), ""),
    ],
)
def test_filters_hold_and_pages_join(stored: Session, wanted: RecordFilter, schedules: str) -> None:
    for limit in (1, 2, 100):
        found, token = record_pages.page(stored, wanted, limit=limit)
        while token is not None:
            assert len(found) % limit == 0
            more, token = record_pages.page(stored, wanted, limit=limit, page_token=token)
            found += more
        assert "".join(each.schedule for each in found) == schedules


@pytest.mark.parametrize("token", ["", "r", "r-1", "rx", "1", "r" + "9" * 19, "r1 OR 1=1"])
def test_a_made_up_token_is_refused(session: Session, token: str) -> None:
    with pytest.raises(errors.InvalidPageToken):
        record_pages.page(session, RecordFilter(), limit=1, page_token=token)


def test_a_stream_yields_all_in_chunks(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_pages, "_ROWS_AT_ONCE", 10)
    with database.transaction() as session:
        assert list(record_pages.stream(database, RecordFilter())) == []
        records.add(session, [record("dense", 1e-3, schedule=str(number)) for number in range(21)])
    chunks = list(record_pages.stream(database, RecordFilter(tuner="autotvm")))
    assert [len(chunk) for chunk in chunks] == [10, 10, 1]
    assert [each.schedule for chunk in chunks for each in chunk] == [str(number) for number in range(21)]


def test_pages_counts_and_exports_use_an_index(many_records: Database) -> None:
    workloads = [f"conv {number}" for number in range(43)]
    asked = {
        "ix_records_history (workload_digest=? AND target=? AND device_key=? AND toolchain=? AND id>?": (
            lambda session: record_pages.page(
                session, RecordFilter(workload_key="conv 1", **PLACED), limit=50, page_token="r5000"
            )
        ),
        "ix_records_export (tuner=? AND target=? AND device_key=? AND toolchain=? AND id>?": lambda session: (
            record_pages.page(session, RecordFilter(tuner="autotvm", **PLACED), limit=50, page_token="r9")
        ),
        "ix_records_job_id_id (job_id=? AND id>?": (
            lambda session: record_pages.page(session, RecordFilter(job_id="j-1"), limit=50, page_token="r9")
        ),
        "(workload_digest=? AND target=? AND device_key=? AND toolchain=?": (
            lambda session: records.counts_of_many(session, workloads, **PLACED)
        ),
        "(workload_digest=?": lambda session: records.passed_over(session, workloads, **PLACED),
    }
    for index, ask in asked.items():
        steps = plans(many_records, ask)
        assert any(index in step for step in steps), steps
        assert not [step for step in steps if step.startswith("SCAN")], steps
        ordered = "id>" in index
        assert not (ordered and any("TEMP B-TREE FOR ORDER" in step for step in steps)), steps


def test_what_to_learn_from_and_what_is_searched_use_an_index(many_records: Database) -> None:
    steps = plans(
        many_records,
        lambda session: records.transfer_candidates(
            session, "conv", excluding_workload="a", **PLACED, tuner="autotvm", limit=9
        ),
    )
    assert any("ix_tuning_tasks_name_workload_digest (name=?" in step for step in steps), steps
    assert not [step for step in steps if step.startswith("SCAN")], steps


HERE = PlaceKey(tuner="autotvm", target=TARGET.identity, device_key=DEVICE.key, toolchain=TOOLCHAIN.identity)


def test_an_empty_store_has_no_summaries(session: Session) -> None:
    assert record_pages.read(session) == []
    assert record_pages.by_place([]) == []


def test_workloads_are_counted_at_each_place(session: Session) -> None:
    job = add_job(session)
    tuning_tasks.save_plan(session, job.id, [task(job.id, workload="dense")])
    dense = [record("dense", 1e-3 * (3 - number), schedule=str(number)) for number in range(3)]
    failed = record("dense", schedule="f", error=TrialError.RUN_ERROR)
    hopeless = record("conv", schedule="f", error=TrialError.BUILD_ERROR, tuner="ansor")
    elsewhere = record("dense", 5e-3, schedule="e", device_key="another")
    records.add(session, [*dense, failed, hopeless, elsewhere])
    first, *rest = record_pages.read(session)
    assert (first.place, first.trials, first.failures, first.best_latency) == (HERE, 4, 1, 1e-3)
    assert first.title == "dense 1×512 ∗ 10×512"
    assert first.gflops == 10_240.0 / 1e-3 / 1e9
    assert {(one.workload_key, one.place.tuner, one.place.device_key) for one in rest} == {
        ("conv", "ansor", DEVICE.key),
        ("dense", "autotvm", "another"),
    }
    conv = next(one for one in rest if one.workload_key == "conv")
    assert (conv.title, conv.best_latency, conv.gflops, conv.failures) == ("conv", None, None, 1)


def test_places_add_their_workloads_up(session: Session) -> None:
    here = [record(workload, 1e-3, schedule="s") for workload in ("dense", "conv", "pool")]
    failed = record("dense", schedule="f", error=TrialError.RUN_ERROR)
    other = record("dense", 1e-3, schedule="o", toolchain="another")
    records.add(session, [*here, failed, other])
    most, least = record_pages.by_place(record_pages.read(session))
    assert (most.place, most.workloads, most.trials, most.failures) == (HERE, 3, 4, 1)
    assert (least.place.toolchain, least.workloads, least.trials, least.failures) == ("another", 1, 1, 0)


def test_counting_reads_an_index_alone(sqlite_database: Database) -> None:
    counting, *_ = plans(sqlite_database, record_pages.read)
    assert "COVERING INDEX ix_records_lookup" in counting
    assert "TEMP B-TREE" not in counting
