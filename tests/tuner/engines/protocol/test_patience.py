from __future__ import annotations

import pytest

from tuner.engines.protocol.patience import ENOUGH, LEAST_SECONDS, Patience


def test_the_first_build_may_take_what_was_asked_for() -> None:
    assert Patience().limit(10.0) == 10.0


def test_while_little_is_known_it_has_three_times_the_patience() -> None:
    patience = Patience()
    for _ in range(ENOUGH - 1):
        patience.saw(0.1)
    assert patience.limit(10.0) == pytest.approx(3 * LEAST_SECONDS)
    patience.saw(0.1)
    assert patience.limit(10.0) == LEAST_SECONDS


def test_builds_get_eight_times_what_most_took_and_never_more_than_asked_for() -> None:
    patience = Patience()
    for seconds in (0.5, 0.5, 0.6, 0.6, 0.6, 0.6, 0.7, 9.0):
        patience.saw(seconds)
    assert patience.limit(10.0) == pytest.approx(4.8)
    assert patience.limit(4.0) == 4.0


def test_a_limit_leaves_room_for_a_machine_that_stumbles() -> None:
    patience = Patience()
    for _ in range(ENOUGH):
        patience.saw(0.05)
    assert patience.limit(10.0) == LEAST_SECONDS


def test_a_busy_machine_makes_it_more_patient() -> None:
    patience = Patience()
    for _ in range(ENOUGH):
        patience.saw(0.2)
    for _ in range(1000):
        patience.saw(0.9)
    assert patience.limit(10.0) == pytest.approx(7.2)
