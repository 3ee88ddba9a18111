"""Several processes that share a queue of calls."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import pytest

from tests.contract.tuner.engines.protocol import example_calls
from tuner.engines.protocol.children import ChildTimedOut, Crew, Outcome
from tuner.engines.protocol.nursery import Nursery

_SECONDS = 20.0


@pytest.fixture
def crew() -> Iterator[Crew]:
    nursery = Nursery(example_calls.__name__, {})
    crew = Crew(2, example_calls.__name__, {}, nursery)
    yield crew
    crew.kill()
    nursery.close()


def sleeps(*seconds: float) -> list[tuple[str, tuple[float]]]:
    return [("sleep", (each,)) for each in seconds]


def test_outcomes_come_in_the_order_of_the_calls(crew: Crew) -> None:
    outcomes = crew.map(sleeps(0.3, 0.0, 0.1, 0.05, 0.0), lambda: _SECONDS)
    assert [outcome.value for outcome in outcomes] == [0.3, 0.0, 0.1, 0.05, 0.0]
    assert not crew.connections


def test_what_others_took_shortens_the_time_of_one_under_way(crew: Crew) -> None:
    seen: list[Outcome] = []
    started = time.monotonic()
    outcomes = crew.map(sleeps(60.0, 0.0, 0.0, 0.0), lambda: 1.0 if len(seen) >= 3 else _SECONDS * 3, seen.append)
    assert time.monotonic() - started < _SECONDS
    assert isinstance(outcomes[0].error, ChildTimedOut)
    assert [outcome.value for outcome in outcomes[1:]] == [0.0, 0.0, 0.0]
    assert len(seen) == 4


def test_a_limit_that_grows_spares_a_call_that_waits(crew: Crew) -> None:
    limits = iter([0.05, *[_SECONDS] * 10])
    outcomes = crew.map(sleeps(0.0, 0.0, 0.3, 0.3), lambda: next(limits))
    assert [outcome.value for outcome in outcomes] == [0.0, 0.0, 0.3, 0.3]


def test_calls_that_were_left_behind_answer_nobody_else(crew: Crew) -> None:
    def fail(_: Outcome) -> None:
        raise RuntimeError("as when a process cannot be started")

    with pytest.raises(RuntimeError):
        crew.map(sleeps(0.0, 0.4, 0.4, 0.4), lambda: _SECONDS, fail)
    assert not crew.connections
    assert [outcome.value for outcome in crew.map(sleeps(0.01, 0.02, 0.03), lambda: _SECONDS)] == [0.01, 0.02, 0.03]


def test_one_that_starts_again_keeps_nobody_waiting() -> None:
    slow_to_start = Crew(2, example_calls.__name__, {})
    try:
        slow_to_start.map(sleeps(0.0, 0.0), lambda: _SECONDS)
        outcomes = slow_to_start.map([("die", (1,)), *sleeps(*[0.0] * 20)], lambda: _SECONDS)
        assert outcomes[0].error is not None
        assert all(outcome.value == 0.0 for outcome in outcomes[1:])
        assert math.isinf(slow_to_start.remaining)
    finally:
        slow_to_start.kill()
