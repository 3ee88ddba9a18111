from __future__ import annotations

import math
from datetime import timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from domain.jobs import Job, JobState, Precision, Tuner, TunerOptions
from domain.records import TrialError
from domain.targets import Target
from domain.tuning_tasks import Effort, key_of
from storage import jobs, records, tuning_tasks, workers, workloads
from storage.database import Database
from storage.tables import JobRow
from tests.support.storage.factories import DIGEST, NOW, PLACED, PLACEMENT, TARGET, TOOLCHAIN, add_job, record, task
from tests.unit.storage.test_records import plans


def running(session: Session, *workload_keys: str, seconds: float = 0.0, trials: int = 16) -> Job:
    """A job that was created so many seconds after ``NOW`` and plans trials for these workloads."""
    now = NOW + timedelta(seconds=seconds)
    job = jobs.claim(session, add_job(session, now=now).id, worker_id="w", now=now, lease_seconds=60, max_attempts=3)
    assert job
    assert job.lease
    jobs.set_placement(session, job.id, job.lease, PLACEMENT)
    planned = [task(job.id, place, key, trials_planned=trials) for place, key in enumerate(workload_keys)]
    tuning_tasks.save_plan(session, job.id, planned)
    return job


def test_the_most_that_any_search_spent_counts(session: Session) -> None:
    first, second = running(session, "conv", "dense"), running(session, "conv", "pool", seconds=1)
    assert tuning_tasks.efforts(session, ["conv", "dense", "pool"], **PLACED) == {}
    tuning_tasks.set_effort(session, first.id, {"conv": Effort(trials=64, seconds=9.5)})
    tuning_tasks.set_effort(session, second.id, {"conv": Effort(trials=32, seconds=20.0)})
    assert tuning_tasks.efforts(session, ["conv", "dense"], **PLACED) == {"conv": Effort(trials=64, seconds=20.0)}
    without = tuning_tasks.efforts(session, ["conv"], **PLACED, excluding_job=second.id)
    assert without == {"conv": Effort(trials=64, seconds=9.5)}
    assert [planned.effort for planned in tuning_tasks.of_job(session, first.id)] == [
        Effort(trials=64, seconds=9.5),
        None,
    ]


def test_an_endless_effort_stays_endless(session: Session) -> None:
    job = running(session, "conv")
    endless = Effort(trials=math.inf, seconds=math.inf)
    tuning_tasks.set_effort(session, job.id, {"conv": endless})
    assert tuning_tasks.efforts(session, ["conv"], **PLACED) == {"conv": endless}
    assert tuning_tasks.of_job(session, job.id)[0].effort == endless


def test_a_new_plan_forgets_or_keeps_the_effort_it_is_given(session: Session) -> None:
    job = running(session, "conv")
    tuning_tasks.set_effort(session, job.id, {"conv": Effort(trials=8, seconds=1)})
    planned = tuning_tasks.of_job(session, job.id)
    tuning_tasks.save_plan(session, job.id, planned)
    assert tuning_tasks.of_job(session, job.id) == planned
    tuning_tasks.save_plan(session, job.id, [task(job.id, 0, "conv")])
    assert tuning_tasks.efforts(session, ["conv"], **PLACED) == {}


@pytest.mark.parametrize("identity", PLACED)
def test_efforts_and_owners_never_cross_an_identity(session: Session, identity: str) -> None:
    searching, job = running(session, "conv"), running(session, "conv", seconds=1)
    elsewhere = {**PLACED, identity: "another"}
    assert tuning_tasks.tuned_elsewhere(session, job.id, ["conv"], **elsewhere, now=NOW) == {}
    tuning_tasks.set_effort(session, searching.id, {"conv": Effort(trials=1, seconds=1)})
    assert tuning_tasks.efforts(session, ["conv"], **elsewhere) == {}


def test_the_job_created_first_owns_a_workload(session: Session) -> None:
    first, second, third = (running(session, "conv", "dense", seconds=place) for place in range(3))
    owners = [
        tuning_tasks.tuned_elsewhere(session, job.id, ["conv", "pool"], **PLACED, now=NOW)
        for job in (first, second, third)
    ]
    assert owners == [{}, {"conv": first.id}, {"conv": first.id}]


def test_nobody_is_told_of_anothers_job(session: Session) -> None:
    first, second, third = (running(session, "conv", seconds=place) for place in range(3))
    session.execute(update(JobRow).where(JobRow.id != first.id).values(owner="ann"))
    waits = [tuning_tasks.tuned_elsewhere(session, job.id, ["conv"], **PLACED, now=NOW) for job in (second, third)]
    assert waits == [{"conv": tuning_tasks.ANOTHER_OWNERS}] * 2
    assert first.id not in str(waits)


def test_jobs_created_at_once_never_wait_for_each_other(session: Session) -> None:
    created = [running(session, "conv").id for _ in range(4)]
    waits = {job: tuning_tasks.tuned_elsewhere(session, job, ["conv"], **PLACED, now=NOW) for job in created}
    owner = min(created)
    assert waits == {job: {} if job == owner else {"conv": owner} for job in created}


def test_who_plans_nothing_has_ended_its_search_or_is_gone_owns_nothing(session: Session) -> None:
    no_trials = running(session, "conv", trials=0)
    ended, expired, canceling = (running(session, "conv", seconds=place) for place in (1, 2, 3))
    tuning_tasks.set_effort(session, ended.id, {"conv": Effort(trials=16, seconds=3)})
    jobs.request_cancel(session, canceling.id, now=NOW)
    failed = running(session, "conv", seconds=4)
    assert failed.lease
    jobs.finish(session, failed.id, failed.lease, state=JobState.FAILED, now=NOW)
    later = NOW + timedelta(seconds=61)
    last = running(session, "conv", seconds=61)
    owners = tuning_tasks.tuned_elsewhere(session, last.id, ["conv"], **PLACED, now=later)
    assert owners == {"conv": expired.id}
    assert tuning_tasks.tuned_elsewhere(session, last.id, ["conv"], **PLACED, now=later + timedelta(seconds=2)) == {}
    assert no_trials.id not in owners.values()


def test_what_an_engine_says_of_a_workload_outweighs_what_somebody_brought_along(session: Session) -> None:
    many = {f"conv {number}": f"module {number}" for number in range(700)}
    assert workloads.add_missing(session, many, tuner="metaschedule") == 700
    assert workloads.add_missing(session, {"conv 1": "another", "dense": "m"}, tuner="metaschedule") == 1
    assert workloads.definitions(session, [*many, "dense", "unknown"]) == {**many, "dense": "m"}
    assert workloads.put_many(session, {"conv 1": "right", "dense": "m"}, tuner="metaschedule") == 1
    assert workloads.definitions(session, ["conv 1", "dense"]) == {"conv 1": "right", "dense": "m"}
    assert workloads.put_many(session, {}, tuner="ansor") == 0


def test_an_extraction_comes_back_as_it_was(session: Session) -> None:
    tasks = [task("j", place, key).extracted for place, key in enumerate(["conv", "dense"])]
    assert workloads.extracted(session, "a" * 64) is None
    workloads.put_extracted(session, "a" * 64, tasks, now=NOW)
    workloads.put_extracted(session, "b" * 64, [], now=NOW + timedelta(days=1))
    assert workloads.extracted(session, "a" * 64) == tasks
    assert workloads.extracted(session, "b" * 64) == []


def extraction_key(**changes: object) -> str:
    values: dict[str, object] = {
        "model_digest": DIGEST,
        "input_shapes": {"x": (1, 3), "y": (2,)},
        "target": TARGET,
        "toolchain": TOOLCHAIN,
        "tuner": Tuner.AUTOTVM,
        "precision": Precision.F32,
        "rewrite": True,
        "options": TunerOptions(),
        "plugins": ["a", "b"],
    }
    return key_of(**(values | changes))  # type: ignore[arg-type]


def test_an_extraction_is_known_by_what_decides_it() -> None:
    same = extraction_key(input_shapes={"y": [2], "x": [1, 3]}, plugins=["b", "a"], options=TunerOptions(n_trial=3))
    assert same == extraction_key()
    others = [
        {"model_digest": "0" * 64},
        {"input_shapes": {"x": (1, 4), "y": (2,)}},
        {"target": Target(text=TARGET.text, threads=4)},
        {"tuner": Tuner.ANSOR},
        {"precision": Precision.FP16},
        {"rewrite": False},
        {"options": TunerOptions(keep_layout=False)},
        {"options": TunerOptions(layout="NHWC")},
        {"plugins": []},
        {"beside": Tuner.AUTOTVM},
    ]
    assert len({extraction_key(), *(extraction_key(**changes) for changes in others)}) == len(others) + 1


def test_a_quarantine_ends_by_itself(session: Session) -> None:
    for device in ("tracker/k/b:1", "tracker/k/a:1"):
        workers.quarantine(session, device, job_id="j-1", reason="timed out", now=NOW, seconds=60)
    workers.quarantine(
        session, "tracker/k/a:1", job_id="j-2", reason="gone", now=NOW + timedelta(seconds=30), seconds=60
    )
    later = NOW + timedelta(seconds=59)
    assert [device.id for device in workers.quarantined(session, later)] == ["tracker/k/a:1", "tracker/k/b:1"]
    (left,) = workers.quarantined(session, NOW + timedelta(seconds=60))
    assert (left.job_id, left.reason, left.until) == ("j-2", "gone", NOW + timedelta(seconds=90))


def test_what_to_learn_from_are_the_fastest_of_other_workloads_of_the_kind(session: Session) -> None:
    running(session, "conv a", "conv b", "conv c")
    mine = [
        record(key, seconds * 1e-3, schedule=f"{key} {seconds}")
        for key in ("conv a", "conv b", "conv c")
        for seconds in (3, 1, 2)
    ]
    another_tuner = record("conv b", 1e-6, schedule="x", tuner="ansor")
    records.add(session, [*mine, another_tuner, record("conv b", 1e-6, schedule="y", toolchain="another")])
    found = records.transfer_candidates(
        session, "dense_pack.x86", excluding_workload="conv a", **PLACED, tuner="autotvm", limit=4
    )
    assert sorted(learned.schedule for learned in found) == ["conv b 1", "conv b 2", "conv c 1", "conv c 2"]
    for name, limit in (("conv2d", 4), ("dense_pack.x86", 0)):
        assert not records.transfer_candidates(
            session, name, excluding_workload="conv a", **PLACED, tuner="autotvm", limit=limit
        )


def test_what_others_found_afterwards_is_left_out(session: Session) -> None:
    first, second = (running(session, "dense", "conv", "pool").id for _ in range(2))
    records.add(session, [record("dense", 3e-3, job_id=first), record("conv", 1e-3, job_id=first)])
    failed = record("pool", error=TrialError.RUN_ERROR, job_id=second)
    records.add(session, [record("dense", 2e-3, job_id=second), record("conv", 5e-3, job_id=second), failed])
    records.add(session, [record("dense", 1e-3, job_id="j-later"), record("dense", 1e-9, target="another")])
    assert tuning_tasks.bests_of_job(session, first) == {"dense": 3e-3, "conv": 1e-3}
    assert tuning_tasks.bests_of_job(session, second) == {"dense": 2e-3, "conv": 1e-3}


def test_a_job_that_measured_nothing_has_what_there_is(session: Session) -> None:
    job = running(session, "dense", "conv").id
    assert tuning_tasks.bests_of_job(session, job) == {}
    records.add(session, [record("dense", 1e-3, job_id="j-other")])
    assert tuning_tasks.bests_of_job(session, job) == {"dense": 1e-3}
    assert tuning_tasks.bests_of_job(session, "j-none") == {}


def test_the_fastest_is_found_by_an_index(sqlite_database: Database) -> None:
    with sqlite_database.transaction() as session:
        job = running(session, "dense").id
        records.add(session, [record("dense", 1e-3, job_id=job)])
    steps = plans(sqlite_database, lambda session: tuning_tasks.bests_of_job(session, job))
    assert any("COVERING INDEX ix_records_lookup" in step for step in steps), steps
    assert not any(step.startswith("SCAN records") for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps
