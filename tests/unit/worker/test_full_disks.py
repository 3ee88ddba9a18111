"""A home folder that is full for a while."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from domain import errors
from domain.jobs import JobState
from tests.support.worker.fixtures import Bench
from tests.support.worker.team import LEADER, Team, by_worker, check_whole


def _host() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _engine() -> None:
    raise errors.EngineRequestFailed("disk_full", "OSError: [Errno 28] No space left on device")


def _start() -> None:
    raise errors.EngineStartFailed("the relay engine did not start") from OSError(errno.EDQUOT, "Quota exceeded")


@pytest.mark.parametrize(
    ("fail", "method"), [(_host, "tune"), (_engine, "tune"), (_engine, "compile"), (_start, "compile")]
)
def test_a_job_is_given_back_and_goes_on_later(bench: Bench, fail: Callable[[], None], method: str) -> None:
    left = [fail]

    def refuse(asked: str, _params: object) -> None:
        if asked == method and left:
            left.pop()()

    bench.script.refuse = refuse
    job_id = bench.job(trials=16)
    bench.runtime().run_job(job_id)
    assert (bench.get(job_id).state, bench.get(job_id).failure) == (JobState.QUEUED, None)
    bench.runtime().run_job(job_id)
    assert bench.get(job_id).state is JobState.SUCCEEDED
    assert len(bench.script.measured) == len(set(bench.script.measured)) == 16


def test_a_tuned_build_is_not_left_out_for_want_of_room(bench: Bench) -> None:
    left = [_engine]

    def refuse(asked: str, params: dict[str, Any]) -> None:
        if asked == "compile" and params["tuner"] and left:
            left.pop()()

    bench.script.refuse = refuse
    job_id = bench.job(trials=16)
    bench.runtime().run_job(job_id)
    assert bench.get(job_id).state is JobState.QUEUED
    bench.runtime().run_job(job_id)
    assert bench.get(job_id).state is JobState.SUCCEEDED
    assert not any("the tuned build failed" in note for note in bench.notes(job_id))


def test_any_other_failure_to_write_is_a_fault(bench: Bench) -> None:
    def refuse(asked: str, _params: object) -> None:
        if asked == "compile":
            raise PermissionError(errno.EACCES, "Permission denied")

    bench.script.refuse = refuse
    job_id = bench.job(trials=16)
    bench.runtime().run_job(job_id)
    failure = bench.get(job_id).failure
    assert failure
    assert failure.code == "internal_error"


def _broken() -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("fail", [_host, _engine, _broken])
def test_a_helper_gives_its_round_back_at_once(
    bench: Bench, team: Callable[[int], Team], fail: Callable[[], None]
) -> None:
    """Nothing is wrong with the workload: it is lost for nobody, and the leader waits for no lease to run out."""
    crew, failed = team(1), []
    helper = crew.helpers[0]
    helper.settings = helper.settings.model_copy(update={"lease_seconds": 600.0})
    crew.leader.call_help = lambda job_id, idle: None if crew.threads else crew.call(job_id, idle)

    def refuse(method: str, params: dict[str, Any]) -> None:
        if method == "tune" and threading.current_thread().name == helper.id:
            failed.append(params["workload_key"])
            fail()

    bench.script.refuse = refuse
    job_id, started = bench.job(trials=96), time.monotonic()
    crew.run(job_id)
    check_whole(bench, job_id, 96)
    assert failed
    assert set(by_worker(bench, job_id)) == {LEADER}
    assert time.monotonic() - started < 200
    assert not any("failed on" in note for note in bench.notes(job_id))
