from __future__ import annotations

from tuner.engines.protocol.patience import ENOUGH, LEAST_SECONDS, Patience


def test_nothing_is_cut_short_before_enough_is_known() -> None:
    patience = Patience()
    for _ in range(ENOUGH - 1):
        patience.saw(0.1)
    assert patience.limit(10.0) == 10.0


def test_builds_get_ten_times_what_most_took_and_never_more_than_asked_for() -> None:
    patience = Patience()
    for seconds in (0.5, 0.5, 0.6, 0.6, 0.6, 0.6, 0.7, 9.0):
        patience.saw(seconds)
    assert patience.limit(10.0) == 6.0
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
    assert patience.limit(10.0) == 9.0
