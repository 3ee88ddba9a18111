from __future__ import annotations

import pytest

from domain.records import TrialError
from tests.unit.tuner.native.test_formats import FORMATS
from tuner.native import lines

ERRORS = {
    "autotvm": TrialError.WRONG_RESULT,
    "ansor": TrialError.WRONG_RESULT,
    # Its lines have no kinds of failure.
    "metaschedule": TrialError.UNKNOWN,
}


@pytest.mark.parametrize("tuner", FORMATS)
def test_a_line_becomes_that_of_a_schedule_that_cannot_be_built(tuner: str) -> None:
    read, (line, *_) = FORMATS[tuner]
    before, after = read(line), read(lines.as_unbuildable(tuner, line))
    expected = TrialError.UNKNOWN if tuner == "metaschedule" else TrialError.BUILD_ERROR
    assert (after.latencies, after.error, after.schedule_digest) == ((), expected, before.schedule_digest)


@pytest.mark.parametrize("tuner", FORMATS)
def test_a_line_becomes_that_of_a_failure_of_the_same_schedule(tuner: str) -> None:
    read, (line, *_) = FORMATS[tuner]
    before, after = read(line), read(lines.as_wrong(tuner, line))
    assert before.latencies
    assert (after.latencies, after.error) == ((), ERRORS[tuner])
    assert (after.workload_key, after.schedule_digest) == (before.workload_key, before.schedule_digest)
    assert (after.target, after.threads, after.finished_at) == (before.target, before.threads, before.finished_at)
