from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from tuner.engines.runtime.measuring import ENOUGH_BUILDS, LEAST_TIMEOUT_SECONDS, AdaptiveTimeout, Measurer
from tuner.engines.runtime.processes import ChildRaised, ChildTimedOut, Outcome, Pool


def test_the_first_build_may_take_what_was_asked_for() -> None:
    assert AdaptiveTimeout().limit(10.0) == 10.0


def test_while_little_is_known_it_has_three_times_the_patience() -> None:
    timeouts = AdaptiveTimeout()
    for _ in range(ENOUGH_BUILDS - 1):
        timeouts.observe(0.1)
    assert timeouts.limit(10.0) == pytest.approx(3 * LEAST_TIMEOUT_SECONDS)
    timeouts.observe(0.1)
    assert timeouts.limit(10.0) == LEAST_TIMEOUT_SECONDS


def test_builds_get_eight_times_what_most_took_and_never_more_than_asked_for() -> None:
    timeouts = AdaptiveTimeout()
    for seconds in (0.5, 0.5, 0.6, 0.6, 0.6, 0.6, 0.7, 9.0):
        timeouts.observe(seconds)
    assert timeouts.limit(10.0) == pytest.approx(4.8)
    assert timeouts.limit(4.0) == 4.0


def test_a_busy_machine_makes_it_more_patient() -> None:
    timeouts = AdaptiveTimeout()
    for _ in range(ENOUGH_BUILDS):
        timeouts.observe(0.2)
    for _ in range(1000):
        timeouts.observe(0.9)
    assert timeouts.limit(10.0) == pytest.approx(7.2)


class Builders:
    """Stands in for a crew: tells prepared outcomes, and remembers the limits."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self._outcomes = outcomes
        self.limits: list[float] = []

    def map(self, calls: Sequence[Any], limit: Callable[[], float], saw: Callable[[Outcome], None]) -> list[Outcome]:
        for outcome in self._outcomes:
            saw(outcome)
            self.limits.append(limit())
        return self._outcomes


def limit_after(outcomes: list[Outcome], timeouts: AdaptiveTimeout) -> float:
    builders = Builders(outcomes)
    Measurer._build(cast(Pool, builders), [], timeouts, 10.0)
    return builders.limits[-1]


def built(seconds: float) -> Outcome:
    return Outcome(value=(None, ("cpu", [])), seconds=seconds)


def test_builds_that_fail_at_once_say_nothing_of_how_long_others_take() -> None:
    failed = Outcome(value=("invalid_schedule", "no such loop"), seconds=0.02)
    raised = Outcome(error=ChildRaised("..."), seconds=0.02)
    assert limit_after([failed, raised] * 10, AdaptiveTimeout()) == 10.0


def test_what_was_given_up_counts_so_that_a_wrong_limit_does_not_hold() -> None:
    """A task whose first candidates are quick and whose others are not."""
    timeouts, given_up = AdaptiveTimeout(), Outcome(error=ChildTimedOut("..."))
    assert limit_after([built(0.05)] * 5, timeouts) == LEAST_TIMEOUT_SECONDS
    assert limit_after([given_up] * 6, timeouts) > 5.0
    assert limit_after([given_up] * 20, timeouts) == 10.0
