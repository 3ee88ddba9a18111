"""Two passes over a candidate: a short one for all, and the long one for those that may turn out the best.

Most candidates of a search are much slower than the best one so far, and their exact times are of no use to anybody. So
a candidate is run once, then glanced at, and measured as the job asks only if it still may win. What was given up keeps
the latencies that it was given up for: they are real ones, only fewer and less exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable

COLD_FACTOR, COLD_SECONDS = 4.0, 0.001
"""The first run finds its data and code in no cache, and is given up only if it takes that many times the best and that
much longer."""
GLANCE_FACTOR = 1.25
"""A short look errs: what is this much slower than the best in it is not the best."""
GLANCE_REPEATS = 2
GLANCE_SECONDS = 0.001
"""For each of the repeats, at least."""

Evaluate = Callable[[int, int, int], list[float]]
"""``(number, repeat, min_repeat_ms)``: seconds per run, one value per repeat of ``number`` runs, more of them where a
repeat would be shorter."""


def measure(
    run: Callable[[], float],
    evaluate: Evaluate,
    *,
    number: int,
    repeat: int,
    min_repeat_ms: int,
    best: float | None,
    fixed: bool = False,
) -> list[float]:
    """Latencies in seconds. ``run`` runs once and tells its seconds; ``best`` is None while nothing is known.

    ``fixed`` keeps the number of runs in a repeat as it was asked for: caches are flushed before each repeat.
    """
    if best is None or not math.isfinite(best):
        return evaluate(number, repeat, min_repeat_ms)
    cold = run()
    if is_hopeless_cold(cold, best):
        return [cold]
    glance = min(evaluate(number if fixed else _runs(cold, GLANCE_SECONDS), GLANCE_REPEATS, 0))
    if is_hopeless(glance, best):
        return [glance]
    # Else TVM finds the number by trying smaller ones first, which takes as long as a repeat.
    enough = number if fixed else max(number, _runs(glance, min_repeat_ms / 1e3))
    return evaluate(enough, repeat, min_repeat_ms)


def is_hopeless_cold(seconds: float, best: float) -> bool:
    return seconds > best * COLD_FACTOR + COLD_SECONDS


def is_hopeless(seconds: float, best: float) -> bool:
    return seconds > best * GLANCE_FACTOR


def _runs(seconds: float, least: float) -> int:
    """Runs that last ``least`` seconds together."""
    return max(1, math.ceil(least / max(seconds, 1e-9)))
