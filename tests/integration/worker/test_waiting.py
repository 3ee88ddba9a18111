"""For which of the jobs that wait a helper leaves the one that it helps with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from domain.jobs import JobRequest, JobState, Stage
from domain.stage_results import StageResult
from storage import job_queries
from storage.tables import JobRow
from tests.support.worker.fixtures import Bench, Killed
from tests.support.worker.scripted import HELLO
from tuner.host import hardware
from worker import clock, engines
from worker.pipeline import running
from worker.pipeline.context import JobContext
from worker.runtime import Runtime

CUDA = "cuda -arch=sm_90"


@pytest.fixture
def helper(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    monkeypatch.setattr(hardware, "accelerators", lambda *_: ())
    monkeypatch.setattr(engines, "ask_hello", lambda name, *_: None if name == "relax" else HELLO)
    runtime = bench.runtime()
    runtime.announce()
    return runtime


def waiting(bench: Bench, count: int, target: str = "native") -> list[str]:
    """Jobs that no idle worker has taken at once."""
    made = [bench.job(target=target) for _ in range(count)]
    for job_id in made:
        change(bench, job_id, created_at=clock.now() - timedelta(minutes=1))
    return made


def change(bench: Bench, job_id: str, **values: object) -> None:
    with bench.database.transaction() as session:
        session.execute(update(JobRow).where(JobRow.id == job_id).values(**values))


def request_of_a_newer_release(bench: Bench, job_id: str) -> None:
    with bench.database.reading() as session:
        row = session.get(JobRow, job_id)
        assert row
        request = {**row.request, "tuner": "annealing"}
    change(bench, job_id, request=request)


def wanted(helper: Runtime) -> str | None:
    """The job for which it leaves, which it claims then."""
    if not helper._is_wanted_elsewhere():
        return None
    job = helper._claim()
    assert job
    return job.id


@pytest.mark.parametrize("others", [0, 19, 20, 25, 205])
def test_jobs_for_other_workers_hide_none(bench: Bench, helper: Runtime, others: int) -> None:
    waiting(bench, others, CUDA)
    assert wanted(helper) is None
    (own,) = waiting(bench, 1)
    assert wanted(helper) == own


def test_a_job_that_an_idle_worker_may_take_at_once_is_left_to_it(bench: Bench, helper: Runtime) -> None:
    bench.job()
    assert not helper._is_wanted_elsewhere()


def test_what_is_for_others_is_read_once(bench: Bench, helper: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    requests = job_queries.requests_of

    def reading(session: Session, job_ids: Sequence[str]) -> dict[str, JobRequest | None]:
        read.extend(job_ids)
        return requests(session, job_ids)

    monkeypatch.setattr(job_queries, "requests_of", reading)
    others = waiting(bench, 3, CUDA)
    assert wanted(helper) is wanted(helper) is None
    assert read == others


def test_a_job_of_a_newer_release_is_left_to_others(bench: Bench, helper: Runtime) -> None:
    newer, own = waiting(bench, 2)
    request_of_a_newer_release(bench, newer)
    assert wanted(helper) == own
    change(bench, newer, state=JobState.RUNNING)
    assert helper.help_job(newer) == 0


def test_a_job_that_used_up_its_attempts_does_not_rest(bench: Bench) -> None:
    helper = bench.runtime(attempt_pause_seconds=3600, max_attempts=3)
    (job_id,) = waiting(bench, 1)
    for attempts in (2, 3):
        bench.take(job_id, "w", lease_seconds=0)
        change(bench, job_id, attempts=attempts)
        assert helper._is_wanted_elsewhere() == (attempts == 3)
    helper.look()
    assert bench.get(job_id).state is JobState.FAILED


def test_a_helper_begins_the_job_for_which_it_left(
    bench: Bench, helper: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: JobContext) -> StageResult:
        raise Killed

    led, steps = bench.job(content=b"another model"), running.STEPS
    with monkeypatch.context() as patch:
        patch.setattr(running, "STEPS", tuple((name, stop if name is Stage.TUNE else step) for name, step in steps))
        with pytest.raises(Killed):
            bench.runtime().run_job(led)
    bench.script.tasks = ["a task of no other job"]
    waiting(bench, 25, CUDA)
    (job_id,) = waiting(bench, 1)
    assert helper.help_job(led) == 0
    helper.look()
    assert bench.get(job_id).state is JobState.SUCCEEDED
    assert bench.get(led).state is JobState.RUNNING
    assert {record.worker_id for record in bench.records(job_id)} == {helper.id}
