"""A home folder that is full for a while."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from domain import errors
from domain.jobs import JobState
from tests.worker.conftest import Bench


def _host() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _engine() -> None:
    raise errors.EngineRequestFailed("disk_full", "OSError: [Errno 28] No space left on device")


def _start() -> None:
    raise errors.EngineStartFailed("the relay engine did not start") from OSError(errno.EDQUOT, "Quota exceeded")


@pytest.mark.parametrize("fail", [_host, _engine, _start])
@pytest.mark.parametrize("method", ["tune", "compile"])
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
