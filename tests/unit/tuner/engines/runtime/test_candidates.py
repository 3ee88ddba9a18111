from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tuner.engines.runtime import candidates

BEST = 2.006e-3
"""Of a 3×3 convolution, in seconds. The candidates below are measurements of its search: the first, cold run, and what
short and long repeats then came to."""


class Recorded:
    """Plays one candidate's measurements back and notes what was asked for."""

    def __init__(self, cold: float, *evaluations: list[float]) -> None:
        self._cold = cold
        self._evaluations: Iterator[list[float]] = iter(evaluations)
        self.asked: list[tuple[int, int, int] | str] = []

    def run(self) -> float:
        self.asked.append("run")
        return self._cold

    def evaluate(self, number: int, repeat: int, min_repeat_ms: int) -> list[float]:
        self.asked.append((number, repeat, min_repeat_ms))
        return next(self._evaluations)

    def measure(self, best: float | None, *, number: int = 1, fixed: bool = False) -> list[float]:
        return candidates.in_two_passes(
            self.run, self.evaluate, number=number, repeat=3, min_repeat_ms=10, best=best, fixed=fixed
        )


@pytest.mark.parametrize("best", [None, math.inf])
def test_without_a_best_every_candidate_gets_the_long_pass(best: float | None) -> None:
    candidate = Recorded(2.9e-3, [2.01e-3])
    assert candidate.measure(best) == [2.01e-3]
    assert candidate.asked == [(1, 3, 10)]


def test_a_candidate_far_from_the_best_is_run_once() -> None:
    candidate = Recorded(41.2e-3)
    assert candidate.measure(BEST) == [41.2e-3]
    assert candidate.asked == ["run"]


def test_a_slow_first_run_alone_is_no_reason_to_give_up() -> None:
    # 3.9 times the best while caches were cold, and then nearly the best.
    candidate = Recorded(7.8e-3, [2.11e-3, 2.04e-3], [2.02e-3])
    assert candidate.measure(BEST) == [2.02e-3]


def test_a_candidate_that_is_clearly_slower_gets_the_short_pass_alone() -> None:
    candidate = Recorded(3.4e-3, [2.95e-3, 2.79e-3])
    assert candidate.measure(BEST) == [2.79e-3]
    assert candidate.asked == ["run", (1, 2, 0)]


def test_one_disturbed_repeat_does_not_lose_the_winner() -> None:
    candidate = Recorded(3.1e-3, [9.5e-3, 1.71e-3], [1.70e-3])
    assert candidate.measure(BEST) == [1.70e-3]
    # Repeats of 10 ms of what takes 1.71 ms.
    assert candidate.asked == ["run", (1, 2, 0), (6, 3, 10)]


def test_short_kernels_run_often_enough_to_be_told_apart() -> None:
    candidate = Recorded(60e-6, [30e-6, 29e-6], [28e-6])
    assert candidate.measure(29e-6, number=4) == [28e-6]
    assert candidate.asked == ["run", (17, 2, 0), (345, 3, 10)]


def test_where_caches_are_flushed_the_number_of_runs_stays() -> None:
    candidate = Recorded(3.1e-3, [2.1e-3, 2.2e-3], [2.0e-3])
    assert candidate.measure(BEST, number=1, fixed=True) == [2.0e-3]
    assert candidate.asked == ["run", (1, 2, 0), (1, 3, 10)]


class Library:
    entry_name = "f"

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def time_evaluator(self, name: str, device: Any, **options: Any) -> Callable[[], Any]:
        self.told.append(options)
        return lambda: SimpleNamespace(results=[3.0, 1.0, 2.0, 9.0][: options["repeat"]])


def test_number_repeat_length_and_flush_reach_tvms_evaluator() -> None:
    session = SimpleNamespace(device=lambda kind: kind, get_function=lambda name: name)
    release, library = cast(Any, SimpleNamespace(fill="fill")), Library()
    measured = candidates.Candidates(release, build_product=cast(Any, None))
    asked = [("cpu", 4, True), ("cpu", 2, False), ("cuda", 2, True)]
    costs = [measured.sample(session, library, (kind, []), 7, repeat, 40, flush) for kind, repeat, flush in asked]
    common = {"number": 7, "min_repeat_ms": 40}
    assert library.told == [
        {**common, "repeat": 4, "f_preproc": "cache_flush_cpu_non_first_arg"},
        {**common, "repeat": 2, "f_preproc": ""},
        {**common, "repeat": 2, "f_preproc": ""},
    ]
    # Of three repeats and more the extremes are left out, as TVM's own runner does.
    assert costs == [[2.0, 3.0], [1.0, 3.0], [1.0, 3.0]]
