"""JSON-lines interface for the stock side of a benchmark, whose TVM prints its progress on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tuned:
    best: str | None
    """Native line of the fastest trial."""
    trials: int
    valid: int


class Side(Protocol):
    def tune(self, task: Json, trials: int) -> Tuned: ...

    def load(self, task: Json, line: str) -> Callable[[], float]:
        """Build a native line; the returned function measures it once, in seconds per run."""
        ...


def serve(make: Callable[[str, int, str], Side]) -> None:
    """Answer requests until standard input ends; ``make`` accepts the target, the thread count and a folder."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    side = make(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(_answer(side, request)) + "\n")
        answers.flush()


def _answer(side: Side, request: Json) -> Json:
    if request["do"] == "tune":
        tuned = side.tune(request["task"], request["trials"])
        return {"best": tuned.best, "trials": tuned.trials, "valid": tuned.valid}
    runs = [side.load(request["task"], line) for line in request["lines"]]
    return {"seconds": _alternately(runs, request["repeat"])}


def _alternately(runs: Sequence[Callable[[], float]], repeat: int) -> list[float]:
    """Return the minimum of each, which is least disturbed by other programs on the machine."""
    seconds = [[run() for run in runs] for _ in range(repeat)]
    return [min(each) for each in zip(*seconds, strict=True)]
