"""How a budget is raced, on curves made by hand and on trials that were really measured (``recorded/``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.jobs import Budget
from tuner.search import racing
from tuner.search.racing import OperatorLatency, Race

RECORDED = Path(__file__).parent / "recorded" / "ppocr_cls_znver3.json"
Curve = Callable[[float], float]
"""Milliseconds after a share of the budget was spent on the strategy."""


def run(
    curves: Mapping[str, Curve],
    *,
    impression: float = 0.1,
    exhausted: Mapping[str, float] | None = None,
    reserves: Sequence[str] = (),
    due: Mapping[str, float] | None = None,
) -> Race:
    """Race strategies along their curves; a strategy in ``exhausted`` has nothing left after that share."""
    race = Race(list(curves), impression=impression, reserves=reserves, due=due)
    spent = dict.fromkeys(curves, 0.0)
    for name in curves.keys() - set(reserves):
        race.begin(name, curves[name](0.0) * 1e-3)
    race.spent = spent  # type: ignore[attr-defined]
    for _ in range(100):
        chosen = race.next_slice(1 - sum(spent.values()))
        if chosen is None:
            return race
        if not spent[chosen.strategy]:
            race.begin(chosen.strategy, curves[chosen.strategy](0.0) * 1e-3)
        room = (exhausted or {}).get(chosen.strategy, 1.0) - spent[chosen.strategy]
        spent[chosen.strategy] += min(chosen.share, room)
        race.report(
            chosen.strategy,
            spent=spent[chosen.strategy],
            seconds=curves[chosen.strategy](spent[chosen.strategy]) * 1e-3,
        )
        if chosen.strategy in (exhausted or {}) and chosen.share >= room:
            race.end(chosen.strategy, "nothing is left to search")
    raise AssertionError("the race does not end")


def spent(race: Race) -> dict[str, float]:
    found: dict[str, float] = race.spent  # type: ignore[attr-defined]
    return found


def falling(start: float, floor: float, half: float) -> Curve:
    """Half of what there is to gain is gained every ``half`` of the budget."""
    return lambda share: float(floor + (start - floor) * 0.5 ** (share / half))


def test_the_faster_strategy_gets_the_budget() -> None:
    race = run({"quick": falling(10, 5, 0.1), "slow": falling(10, 9, 0.1)})
    assert spent(race)["quick"] >= 0.85
    assert race.verdict("quick") == ""
    assert race.verdict("slow").startswith("too slow: 9.5 ms expected against 6.25 ms")


def test_a_late_strategy_that_gains_more_overtakes() -> None:
    # After the first impressions the steady strategy is ahead, and has little left to gain.
    race = run({"settled": falling(10, 7, 0.03), "steady": falling(12, 3, 0.2)})
    assert spent(race)["steady"] > spent(race)["settled"]


def test_a_strategy_far_behind_is_dropped_after_its_impression() -> None:
    race = run({"near": falling(10, 8, 0.2), "far": falling(100, 60, 0.5)})
    assert spent(race) == {"near": pytest.approx(0.9), "far": pytest.approx(0.1)}


def test_what_an_exhausted_strategy_leaves_goes_to_the_next() -> None:
    race = run({"small": falling(10, 5, 0.05), "large": falling(10, 4, 0.3)}, exhausted={"small": 0.2})
    assert spent(race)["small"] == pytest.approx(0.2)
    assert spent(race)["large"] == pytest.approx(0.8)


def test_a_strategy_alone_is_looked_at_again_and_again() -> None:
    race = Race(["autotvm"], impression=0.1)
    race.begin("autotvm", 1e-2)
    shares, left, seconds = [], 1.0, 1e-2
    while (chosen := race.next_slice(left)) is not None:
        shares.append(round(chosen.share, 4))
        left, seconds = left - chosen.share, seconds * 0.9
        race.report("autotvm", spent=1 - left, seconds=seconds)
    assert shares == [0.05, 0.05, 0.1, 0.1, 0.1, 0.1, 0.125, 0.1562, 0.1953, 0.0234]


def test_slices_double() -> None:
    race = Race(["a", "b"], impression=0.1)
    for name in ("a", "b"):
        race.begin(name, 1e-2)
    sizes = []
    done = {"a": 0.0, "b": 0.0}
    for _ in range(6):
        chosen = race.next_slice(1 - sum(done.values()))
        assert chosen is not None
        sizes.append((chosen.strategy, round(chosen.share, 6)))
        done[chosen.strategy] += chosen.share
        race.report(chosen.strategy, spent=done[chosen.strategy], seconds=1e-2 - done[chosen.strategy] * 1e-3)
    # The strategy named first is preferred as long as both gain alike.
    assert sizes == [("a", 0.05), ("a", 0.05), ("b", 0.05), ("b", 0.05), ("a", 0.1), ("a", 0.2)]


def test_a_settled_strategy_hands_over_and_reserves_start_in_their_order() -> None:
    curves = {"first": falling(10, 8, 0.01), "second": falling(10, 9, 0.01), "third": falling(10, 2, 0.3)}
    race = run(curves, reserves=("second", "third"))
    assert 0.1 <= spent(race)["first"] <= 0.3
    assert 0.1 <= spent(race)["second"] <= 0.3
    assert spent(race)["third"] >= 0.4
    assert sum(spent(race).values()) == pytest.approx(1.0)


def test_no_reserve_starts_while_another_strategy_expects_more() -> None:
    race = run({"first": falling(10, 2, 0.3), "second": falling(10, 1, 0.1)}, reserves=("second",))
    assert spent(race) == {"first": pytest.approx(1.0), "second": 0.0}


@pytest.mark.parametrize("rival", [10.0, 30.0])
def test_a_reserve_that_is_due_starts_while_the_leader_still_gains(rival: float) -> None:
    curves = {"first": falling(10, 2, 0.3), "rival": falling(rival, 0.8 * rival, 0.3), "second": falling(4, 1, 0.1)}
    race = run(curves, reserves=("second",), due={"second": 0.3})
    assert spent(race)["second"] == pytest.approx(0.3, abs=0.11)
    # It improves on the first one's build, which therefore is not too slow.
    assert race.verdict("first") == ""


def test_a_race_in_which_nothing_expects_more_leaves_the_rest() -> None:
    race = run({"first": falling(10, 8, 0.01), "second": falling(10, 9, 0.01)})
    left = 1 - sum(spent(race).values())
    assert left > 0.5
    assert race.is_settled(left)
    assert not race.is_settled(0.0)


def test_a_strategy_that_has_not_tried_everything_is_not_settled() -> None:
    race = Race(["large", "other"], impression=0.1, reserves=("other",))
    race.begin("large", 1e-2)
    for share in (0.05, 0.1, 0.2):
        race.report("large", spent=share, seconds=9e-3, explored=False)
    assert race.next_slice(0.8) == racing.Slice(strategy="large", share=pytest.approx(0.1))
    race.report("large", spent=0.3, seconds=9e-3)
    assert race.next_slice(0.7) == racing.Slice(strategy="other", share=pytest.approx(0.05))
    # Too little is left for the first slice of another strategy.
    assert race.next_slice(0.05) is None


def test_a_strategy_without_a_valid_trial_stays_where_it_began() -> None:
    race = Race(["a", "b"], impression=0.1)
    for name in ("a", "b"):
        race.begin(name, 1e-2)
    for share in (0.05, 0.1):
        race.report("a", spent=share, seconds=None)
        race.report("b", spent=share, seconds=5e-3 - share * 1e-2)
    chosen = race.next_slice(0.8)
    assert chosen is not None
    assert chosen.strategy == "b"
    assert race.verdict("a").startswith("too slow")


@given(
    starts=st.lists(st.floats(1, 100), min_size=1, max_size=4),
    halves=st.lists(st.floats(0.01, 2), min_size=4, max_size=4),
    floors=st.lists(st.floats(0, 1), min_size=4, max_size=4),
)
def test_every_race_ends_with_the_budget_spent_or_nothing_expected(
    starts: list[float], halves: list[float], floors: list[float]
) -> None:
    curves = {str(place): falling(start, start * floors[place], halves[place]) for place, start in enumerate(starts)}
    race = run(curves)
    left = 1 - sum(spent(race).values())
    assert left == pytest.approx(0.0) or race.is_settled(left)
    assert any(not race.verdict(name) for name in curves)


@pytest.mark.parametrize(
    ("budget", "strategies"),
    [
        (Budget(seconds=100), 1),
        (Budget(seconds=180), 2),
        (Budget(seconds=300), 2),
        (Budget(seconds=360), 3),
        (Budget(seconds=3600), 21),
        (Budget(trials=64), 1),
        (Budget(trials=1024), 3),
        (Budget(trials=10_000, seconds=100), 1),
        (Budget(trials=100, seconds=3600), 1),
    ],
)
def test_a_small_budget_is_not_spent_on_impressions(budget: Budget, strategies: int) -> None:
    assert racing.entrants(budget) == strategies
    assert racing.impression(budget) * (strategies - 1) <= racing.CHALLENGE_SHARE


@pytest.mark.parametrize(
    ("budget", "rivals"),
    [
        (Budget(seconds=300), False),
        (Budget(seconds=600), True),
        (Budget(trials=999), False),
        (Budget(trials=1000), True),
        (Budget(trials=1000, seconds=300), False),
    ],
)
def test_tuners_race_only_for_budgets_that_can_make_up_for_a_wrong_turn(budget: Budget, rivals: bool) -> None:
    assert racing.has_rivals(budget) is rivals


def operator(
    best: float | None, *, default: float | None = None, weight: int = 1, flop: float = 1e6
) -> OperatorLatency:
    return OperatorLatency(weight=weight, flop=flop, default=default, best=best)


def test_the_estimate_takes_gains_off_the_untuned_time() -> None:
    # Two runs of one operator gained 1 ms each; what was not tuned stays.
    found = racing.estimate(10e-3, [operator(2e-3, default=3e-3, weight=2), operator(None)])
    assert found == pytest.approx(8e-3)


def test_a_default_that_nobody_measured_is_its_share_of_the_work() -> None:
    # A quarter of 10 ms, then 2 ms.
    found = racing.estimate(10e-3, [operator(2e-3, flop=1e6), operator(None, flop=3e6)])
    assert found == pytest.approx(9.5e-3)


def test_a_gain_that_nobody_measured_is_believed_in_part() -> None:
    # The operator with nearly all FLOPs takes 1 ms of 10: what the others take, nobody knows.
    others = [operator(None, flop=1.0)]
    assert racing.estimate(10e-3, [operator(1e-3), *others]) == pytest.approx(9.75e-3)
    assert racing.estimate(10e-3, [operator(1e-3), operator(2e-3, flop=1.0)]) == pytest.approx(3e-3)


def test_no_estimate_is_below_what_was_measured() -> None:
    assert racing.estimate(1e-3, [operator(2e-3, default=9e-3)]) == pytest.approx(2e-3)


def test_without_a_valid_trial_there_is_no_estimate() -> None:
    assert racing.estimate(1e-3, [operator(None, default=1e-3)]) is None
    assert racing.estimate(1e-3, []) is None


def test_strategies_near_the_fastest_are_worth_a_build() -> None:
    found = racing.near({"ansor": 1.29e-3, "autotvm": 1e-3, "metaschedule": 1.4e-3})
    assert list(found.items()) == [("autotvm", True), ("ansor", True), ("metaschedule", False)]
    assert racing.near({}) == {}


def test_builds_take_a_small_part_of_the_budget() -> None:
    def affords(seconds: float, built: int, spent: float = 0.0) -> bool:
        return racing.affords(seconds, built=built, spent=spent, next_seconds=20.0)

    assert affords(0, 0)
    assert not affords(100, 1)
    assert affords(300, 1)
    assert affords(300, 2, 20.0)
    assert not affords(300, 3, 50.0)
    assert not affords(1e6, 4)


def recorded() -> Curve:
    """What AutoTVM's trials of a real network, round after round for each task in turn, come to in 200 seconds."""
    tasks = json.loads(RECORDED.read_text())
    points, spent = [], 0.0
    done = [0] * len(tasks)

    def found() -> float:
        operators = []
        for each, count in zip(tasks, done, strict=True):
            valid = [latency for latency in each["latencies"][:count] if latency]
            default = each["latencies"][0]
            best = min(valid, default=None)
            operators.append(operator(best, default=default, weight=each["task"]["weight"], flop=each["task"]["flop"]))
        return (racing.estimate(1.6e-3, operators) or 1.6e-3) * 1e3

    for place in cycle(range(len(tasks))):
        if spent >= 200.0 or min(done) >= 24:
            break
        done[place] += 8
        spent += 8 * tasks[place]["seconds_per_trial"]
        points.append((spent / 200.0, found()))
    return lambda share: next((value for at, value in reversed(points) if at <= share), 1.6)


def test_on_recorded_trials_a_slower_challenger_costs_its_impression() -> None:
    curve = recorded()
    # The challenger is made by hand: an engine that is slower untuned, and gains steadily.
    race = run({"autotvm": curve, "metaschedule": falling(2.4, 1.3, 0.3)}, impression=0.15)
    assert spent(race)["metaschedule"] == pytest.approx(0.15)
    assert curve(spent(race)["autotvm"]) <= curve(1.0) * 1.03


def test_on_recorded_trials_a_faster_challenger_wins() -> None:
    race = run({"autotvm": recorded(), "metaschedule": falling(1.5, 0.5, 0.1)}, impression=0.15)
    assert spent(race)["metaschedule"] >= 0.7
