from __future__ import annotations

from sqlalchemy.orm import Session

from domain.records import TrialError
from storage import record_pages, records, tuning_tasks
from storage.database import Database
from storage.record_pages import PlaceKey
from tests.support.storage.factories import DEVICE, TARGET, TOOLCHAIN, add_job, record, task
from tests.unit.storage.test_records import plans

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
