"""Native lines of successes as those of failures."""

from __future__ import annotations

import json
from typing import Any

_WRONG_ANSWER = 5
"""Of ``MeasureErrorNo``, alike in AutoTVM and Ansor; MetaSchedule has no kinds of failure."""
_FAILED_SECONDS = 1e10
"""What TVM writes as the time of a trial that failed."""


def as_wrong(tuner: str, line: str) -> str:
    """The line of a trial whose results were wrong; the schedule, and so its digest, stays what it is."""
    row = json.loads(line)
    return json.dumps(_REWRITES[tuner](row), separators=(",", ":"))


def _autotvm(row: Any) -> Any:
    _, _, seconds, finished_at = row["result"]
    return {**row, "result": [["wrong result"], _WRONG_ANSWER, seconds, finished_at]}


def _ansor(row: Any) -> Any:
    _, _, seconds, finished_at = row["r"]
    return {**row, "r": [[_FAILED_SECONDS], _WRONG_ANSWER, seconds, finished_at]}


def _metaschedule(row: Any) -> Any:
    workload_key, (trace, _, target, arguments) = row
    return [workload_key, [trace, [_FAILED_SECONDS], target, arguments]]


_REWRITES = {"autotvm": _autotvm, "ansor": _ansor, "metaschedule": _metaschedule}
