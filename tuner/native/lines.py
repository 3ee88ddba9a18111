"""Common parts of the three formats: untrusted JSON, one text per line."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from domain.digests import ScheduleDigest
from domain.records import TrialError

LONGEST_LINE_BYTES = 4 * 1024 * 1024
"""Same as the maximum length of an engine message."""
DEEPEST = 64
"""Maximum nesting of brackets; TVM's own lines have about ten levels."""
_LONGEST_KEY = 100_000
_MOST_COSTS = 10_000
_FAILED_SECONDS = 1e9
"""TVM writes 1e9 or 1e10 seconds for a failed trial."""
_ERRORS = {
    1: TrialError.INVALID_SCHEDULE,
    2: TrialError.BUILD_ERROR,
    3: TrialError.BUILD_ERROR,
    4: TrialError.RUN_ERROR,
    5: TrialError.WRONG_RESULT,
    6: TrialError.BUILD_TIMEOUT,
    7: TrialError.RUN_TIMEOUT,
    8: TrialError.UNKNOWN,
}
"""``tvm.autotvm.measure.MeasureErrorNo`` and the equal numbers of ``tvm.auto_scheduler``: instantiation, host and
device compilation, run time, wrong answer, build and run timeout, unknown."""


class Refused(Exception):
    """A line was rejected; the text says why."""


@dataclass(frozen=True, kw_only=True)
class NativeRecord:
    """A parsed line."""

    workload_key: str
    target: str
    """``Target.text``."""
    threads: int | None
    """None if the line does not contain it."""
    schedule: str
    """The line itself, as it is stored."""
    schedule_digest: ScheduleDigest
    latencies: tuple[float, ...]
    """Seconds; empty if and only if there is an error."""
    error: TrialError | None
    finished_at: datetime | None
    tvm: str | None
    """Version of the TVM that wrote the line, if recorded."""


def parse(line: str) -> Any:
    """Parse the line as JSON. Raises Refused."""
    if len(line) > LONGEST_LINE_BYTES:
        raise Refused(f"longer than {LONGEST_LINE_BYTES} bytes")
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refused("not JSON") from error
    if _depth(value) > DEEPEST:
        raise Refused(f"nested deeper than {DEEPEST} levels")
    return value


def expect(fits: bool, what: str) -> None:
    """Raise Refused with the reason ``what`` unless ``fits``."""
    if not fits:
        raise Refused(what)


def is_list(value: Any, length: int) -> bool:
    return isinstance(value, list) and len(value) == length


def key(value: Any) -> str:
    expect(isinstance(value, str) and 0 < len(value) <= _LONGEST_KEY, "its workload key is not text, or too long")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Refused("its workload key is not Unicode") from error
    expect("\0" not in value, "its workload key is not Unicode")
    return str(value)


def digest(candidate: Any) -> ScheduleDigest:
    """Return the sha256 of workload and schedule, as every engine computes it."""
    return ScheduleDigest(hashlib.sha256(json.dumps(candidate, separators=(",", ":")).encode()).hexdigest())


def outcome(costs: Any, error_number: Any) -> tuple[tuple[float, ...], TrialError | None]:
    """Return latencies in seconds, or the error. Raises Refused for invalid values."""
    expect(isinstance(error_number, int) and not isinstance(error_number, bool), "its error number is not a number")
    if error_number != 0:
        expect(error_number in _ERRORS, f"its error number {error_number} is not one of TVM's")
        return (), _ERRORS[error_number]
    return latencies(costs)


def latencies(costs: Any) -> tuple[tuple[float, ...], TrialError | None]:
    expect(isinstance(costs, list) and 0 < len(costs) <= _MOST_COSTS, "it has no list of costs")
    expect(
        all(isinstance(cost, (int, float)) and not isinstance(cost, bool) for cost in costs), "a cost is not a number"
    )
    try:
        seconds = tuple(float(cost) for cost in costs)
    except OverflowError as error:
        raise Refused("a cost is not a positive time") from error
    expect(all(math.isfinite(cost) and cost > 0 for cost in seconds), "a cost is not a positive time")
    return ((), TrialError.UNKNOWN) if max(seconds) >= _FAILED_SECONDS else (seconds, None)


def moment(timestamp: Any) -> datetime | None:
    """Convert Unix seconds; None if they are not a valid time."""
    if not isinstance(timestamp, (int, float)) or isinstance(timestamp, bool):
        return None
    try:
        return datetime.fromtimestamp(timestamp, UTC) if timestamp > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        inner: list[Any] = []
        for each in level:
            if isinstance(each, list):
                inner += each
            elif isinstance(each, dict):
                inner += each.values()
        depth, level = depth + 1, inner
        if depth > DEEPEST + 1:
            break
    return depth - 1


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_WRONG_ANSWER, _NOT_COMPILED = 5, 2
"""Error numbers in ``MeasureErrorNo``, the same in AutoTVM and Ansor; MetaSchedule has no error kinds."""
_FAILED_COST = 1e10
"""Time that TVM writes for a failed trial, in seconds."""


def as_wrong(tuner: str, line: str) -> str:
    """Return the line of a trial with its results marked wrong; the schedule, and thus its digest, stays the same."""
    return _failed(tuner, line, "wrong result", _WRONG_ANSWER)


def as_unbuildable(tuner: str, line: str) -> str:
    """Return the line of a trial as that of one that cannot be built; its digest stays the same."""
    return _failed(tuner, line, "not built", _NOT_COMPILED)


def _failed(tuner: str, line: str, message: str, number: int) -> str:
    return json.dumps(_REWRITES[tuner](json.loads(line), message, number), separators=(",", ":"))


def _autotvm(row: Any, message: str, number: int) -> Any:
    _, _, seconds, finished_at = row["result"]
    return {**row, "result": [[message], number, seconds, finished_at]}


def _ansor(row: Any, _: str, number: int) -> Any:
    _, _, seconds, finished_at = row["r"]
    return {**row, "r": [[_FAILED_COST], number, seconds, finished_at]}


def _metaschedule(row: Any, _message: str, _number: int) -> Any:
    workload_key, (trace, _, target, arguments) = row
    return [workload_key, [trace, [_FAILED_COST], target, arguments]]


_REWRITES = {"autotvm": _autotvm, "ansor": _ansor, "metaschedule": _metaschedule}
