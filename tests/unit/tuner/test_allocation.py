"""The policy on its own, then on trials that were really measured (``recorded/``)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.tuning_tasks import ExtractedTask, TuningTask
from tuner.search.allocation import Allocator, Round

RECORDED = Path(__file__).parent / "recorded" / "ppocr_cls_znver3.json"


def task(
    key: str,
    *,
    weight: int = 1,
    flop: float = 1e6,
    planned: int = 64,
    name: str = "conv2d",
    space_size: int = 10_000,
    alternatives: int | None = None,
) -> TuningTask:
    extracted = ExtractedTask(
        position=int(key[1:]),
        name=name,
        workload_key=key,
        description="",
        weight=weight,
        flop=flop,
        space_size=space_size,
        alternatives=alternatives,
    )
    return TuningTask(job_id="j-1", extracted=extracted, trials_planned=planned)


def spend(
    allocator: Allocator,
    latency: Callable[[str, int], float | None],
    *,
    rounds: int = 10_000,
    told: Callable[[str], dict[str, float]] = lambda key: {},
) -> list[str]:
    """Run rounds whose best latency is ``latency(workload, trials done)``; returns whose they were.

    ``told`` is what else is known about a workload's rounds.
    """
    order = []
    for _ in range(rounds):
        following = allocator.next_round()
        if following is None:
            break
        order.append(following.workload_key)
        done = following.first_trial + following.trials
        allocator.finished(
            following.workload_key,
            trials=following.trials,
            best_latency=latency(following.workload_key, done),
            exhausted=False,
            **told(following.workload_key),
        )
    return order


def test_each_kind_of_operator_is_tried_first_on_its_heaviest_task() -> None:
    tasks = [
        task("w0", flop=1e6), task("w1", flop=9e6), task("w2", flop=2e6, name="depthwise"),
        task("w3", flop=3e6, name="depthwise"), task("w4", flop=10.0, name="dense"),
    ]  # fmt: skip
    assert spend(Allocator(tasks), lambda key, done: 1e-4, rounds=2) == ["w1", "w3"]


def test_what_takes_most_of_the_model_gets_most() -> None:
    tasks = [task("w0", planned=1000), task("w1", planned=1000, weight=10), task("w2", planned=1000)]
    order = spend(Allocator(tasks), lambda key, done: 1e-3, rounds=60)
    assert order.count("w1") > 2 * max(order.count("w0"), order.count("w2"))
    assert min(order.count("w0"), order.count("w2")) >= 3


def test_the_slower_way_to_compute_an_operator_is_left() -> None:
    both = {"alternatives": 0, "planned": 64}
    tasks = [task("w0", **both), task("w1", name="winograd", **both), task("w2", planned=64)]  # type: ignore[arg-type]
    latencies = {"w0": 2e-3, "w1": 1e-3, "w2": 1e-3}
    order = spend(Allocator(tasks), lambda key, done: latencies[key])
    assert order.count("w0") == 2
    assert len(order) == 24, "its trials go to others"
    near = spend(Allocator(tasks), lambda key, done: {**latencies, "w0": 1.2e-3}[key])
    assert near.count("w0") == 8


def test_nothing_is_spent_where_only_the_slower_way_is_left() -> None:
    tasks = [task("w0", alternatives=0), task("w1", alternatives=0, space_size=16)]
    order = spend(Allocator(tasks), lambda key, done: 2e-3 if key == "w0" else 1e-3)
    assert (order.count("w0"), order.count("w1")) == (2, 2)


def test_of_equals_the_task_that_just_improved_comes_first() -> None:
    allocator = Allocator([task("w0"), task("w1")])
    for key, latency in (("w0", 1e-3), ("w1", 2e-3), ("w0", 1e-3), ("w1", 1e-3)):
        allocator.finished(key, trials=8, best_latency=latency, exhausted=False)
    following = allocator.next_round()
    assert following
    assert following.workload_key == "w1"


def test_cheap_trials_come_before_dear_ones() -> None:
    tasks = [task("w0", planned=1000), task("w1", planned=1000, name="depthwise")]
    seconds = {"w0": 1.0, "w1": 8.0}
    order = spend(Allocator(tasks), lambda key, done: 1e-3, rounds=40, told=lambda key: {"seconds": seconds[key]})
    assert len(order) == 40
    assert order.count("w0") > 2 * order.count("w1") > 0


def test_kinds_that_gain_over_their_default_come_before_kinds_that_do_not() -> None:
    tasks = [
        task("w0", planned=1000, name="depthwise"), task("w1", planned=1000, name="depthwise"),
        task("w2", planned=1000), task("w3", planned=1000),
    ]  # fmt: skip
    defaults = {"w0": 1e-3, "w1": 1e-3, "w2": 3e-3, "w3": 3e-3}
    order = spend(
        Allocator(tasks), lambda key, done: 1e-3, rounds=40, told=lambda key: {"default_latency": defaults[key]}
    )
    assert len(order) == 40
    stuck = order.count("w0") + order.count("w1")
    assert 4 <= stuck < 15


def test_a_task_whose_trials_all_fail_does_not_eat_the_budget() -> None:
    tasks = [task("w0", planned=1000, flop=5e6), task("w1", planned=1000), task("w2", planned=1000)]
    order = spend(Allocator(tasks), lambda key, done: None if key == "w0" else 1e-3, rounds=60)
    assert 1 <= order.count("w0") <= 50
    assert min(order.count("w1"), order.count("w2")) >= 4


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.floats(0, 1e9), st.integers(0, 60), st.integers(1, 80)), min_size=1, max_size=12
    ),
    st.integers(1, 16),
)
def test_the_whole_plan_is_spent_and_nothing_more(rows: list[tuple[int, float, int, int]], round_trials: int) -> None:
    tasks = [
        task(f"w{i}", weight=weight, flop=flop, planned=min(planned, space), space_size=space, name=f"kind{i % 3}")
        for i, (weight, flop, planned, space) in enumerate(rows)
    ]
    allocator = Allocator(tasks, round_trials=round_trials)
    spent: dict[str, int] = {}
    while following := allocator.next_round():
        assert 1 <= following.trials <= round_trials
        assert following.first_trial == spent.get(following.workload_key, 0)
        spent[following.workload_key] = following.first_trial + following.trials
        allocator.finished(following.workload_key, trials=following.trials, best_latency=1e-3, exhausted=False)
    assert spent == {each.extracted.workload_key: each.trials_planned for each in tasks if each.trials_planned}


def test_what_an_exhausted_task_leaves_goes_to_the_others() -> None:
    allocator = Allocator([task("w0", planned=32), task("w1", planned=32)])
    total = 0
    while following := allocator.next_round():
        total += following.trials
        allocator.finished(
            following.workload_key, trials=following.trials, best_latency=1e-3, exhausted=following.workload_key == "w0"
        )
    assert total == 64


def test_rounds_that_spend_nothing_end_the_search() -> None:
    allocator = Allocator([task("w0"), task("w1")])
    for _ in range(2):
        following = allocator.next_round()
        assert following
        allocator.finished(following.workload_key, trials=0, best_latency=None, exhausted=False)
    assert allocator.next_round() is None


def test_a_search_is_explored_once_every_task_that_matters_had_a_round() -> None:
    tasks = [task("k0", flop=1e6), task("k1", flop=1e5), task("k2", flop=1e3), task("k3", planned=0)]
    allocator = Allocator(tasks)
    explored = []
    for key in ("k0", "k1"):
        explored.append(allocator.is_explored())
        allocator.finished(key, trials=8, best_latency=1e-3, exhausted=False)
    assert explored == [False, False]
    # The third is a thousandth of the work, and the fourth is covered.
    assert allocator.is_explored()
    assert not Allocator([tasks[0]]).is_explored()


def test_a_slow_operator_of_few_operations_comes_first_where_its_time_is_known() -> None:
    tasks = [task("t0", flop=1e8), task("t1", flop=1e5, name="depthwise")]
    for untuned, expected in (({}, "t0"), ({"t1": 1e-3}, "t0"), ({"t0": 1e-4, "t1": 1e-3}, "t1")):
        following = Allocator(tasks, untuned=untuned).next_round()
        assert following is not None
        assert following.workload_key == expected


def test_covered_tasks_get_no_round() -> None:
    allocator = Allocator([task("w0", planned=0, weight=100), task("w1", planned=16)])
    assert set(spend(allocator, lambda key, done: 1e-3)) == {"w1"}
    assert Allocator([]).next_round() is None


def test_the_last_round_is_as_short_as_what_is_left() -> None:
    allocator = Allocator([task("w0", planned=11)])
    sizes = []
    while following := allocator.next_round():
        sizes.append(following.trials)
        allocator.finished("w0", trials=following.trials, best_latency=None, exhausted=False)
    assert sizes == [8, 3]


def test_an_allocator_made_from_stored_tasks_goes_on() -> None:
    stored = dataclasses.replace(task("w0", planned=20), trials_done=16, best_latency=1e-3)
    following = Allocator([stored]).next_round()
    assert following
    assert (following.first_trial, following.trials) == (16, 4)


# on recorded measurements


@dataclass
class Replay:
    """A model's tasks and, for each, the trials that were measured one after the other, with their cost."""

    tasks: list[ExtractedTask]
    latencies: dict[str, list[float | None]]
    seconds: dict[str, float]
    position: dict[str, int] = field(default_factory=dict)

    def model_latency(self) -> float:
        """What one run spends in these tasks after the trials so far; the first trial is the untuned default."""
        return sum(each.weight * min(self.seen(each.workload_key)) for each in self.tasks)

    def seen(self, key: str) -> list[float]:
        taken = self.latencies[key][: max(1, self.position.get(key, 0))]
        return [latency for latency in taken if latency is not None] or [first(self.latencies[key])]

    def run(self, key: str, trials: int) -> tuple[float | None, float]:
        start = self.position.get(key, 0)
        taken = self.latencies[key][start : start + trials]
        self.position[key] = start + len(taken)
        return min((each for each in taken if each is not None), default=None), self.seconds[key] * len(taken)


def first(latencies: Sequence[float | None]) -> float:
    return next(latency for latency in latencies if latency is not None)


@pytest.fixture
def replay() -> Replay:
    data = json.loads(RECORDED.read_text())
    return Replay(
        tasks=[ExtractedTask(**each["task"]) for each in data],
        latencies={each["task"]["workload_key"]: each["latencies"] for each in data},
        seconds={each["task"]["workload_key"]: each["seconds_per_trial"] for each in data},
    )


def tune_by_allocator(replay: Replay, seconds: float, untuned: Mapping[str, float] | None = None) -> float:
    tasks = [
        TuningTask(job_id="j-1", extracted=each, trials_planned=len(replay.latencies[each.workload_key]))
        for each in replay.tasks
    ]
    allocator = Allocator(tasks, untuned=untuned)
    while seconds > 0 and (following := allocator.next_round()):
        best, cost = replay.run(following.workload_key, following.trials)
        seconds -= cost
        allocator.finished(
            following.workload_key,
            trials=following.trials,
            best_latency=best,
            exhausted=False,
            seconds=cost,
            default_latency=None if following.first_trial else replay.latencies[following.workload_key][0],
        )
    return replay.model_latency()


def tune_in_turn(replay: Replay, seconds: float) -> float:
    """What a loop over tasks in the order of extraction reaches, each with all its trials."""
    for each in replay.tasks:
        while seconds > 0 and replay.position.get(each.workload_key, 0) < len(replay.latencies[each.workload_key]):
            seconds -= replay.run(each.workload_key, 8)[1]
    return replay.model_latency()


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_measured_trials_are_spent_better_than_in_turn(replay: Replay, share: float) -> None:
    budget = share * sum(replay.seconds[key] * len(each) for key, each in replay.latencies.items())
    before = replay.model_latency()
    in_turn = tune_in_turn(dataclasses.replace(replay, position={}), budget)
    allocated = tune_by_allocator(dataclasses.replace(replay, position={}), budget)
    assert before - allocated > 1.2 * (before - in_turn)


@pytest.mark.parametrize("share", [0.15, 0.25, 0.5])
def test_times_of_the_untuned_build_lead_to_what_takes_longest(replay: Replay, share: float) -> None:
    budget = share * sum(replay.seconds[key] * len(each) for key, each in replay.latencies.items())
    # Inside the network operators take longer than by themselves, not all of them alike.
    factors = cycle((1.0, 1.5, 1.2))
    untuned = {key: first(each) * next(factors) for key, each in replay.latencies.items()}
    guessed = tune_by_allocator(dataclasses.replace(replay, position={}), budget)
    known = tune_by_allocator(dataclasses.replace(replay, position={}), budget, untuned)
    assert known < 0.99 * guessed


def test_all_measured_trials_reach_the_same_best(replay: Replay) -> None:
    everything = tune_by_allocator(dataclasses.replace(replay, position={}), float("inf"))
    assert everything == tune_in_turn(dataclasses.replace(replay, position={}), float("inf"))


EVENTS = st.lists(st.tuples(st.sampled_from(["begin", "end", "lose", "exhaust"]), st.integers(0, 8)), max_size=80)


@given(
    plan=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 60)), min_size=1, max_size=6),
    events=EVENTS,
)
def test_rounds_at_once_never_cost_more_than_the_plan_nor_meet_in_a_task(
    plan: list[tuple[int, int]], events: list[tuple[str, int]]
) -> None:
    """However rounds of many workers begin, end, and are lost with some of their trials spent."""
    tasks = [task(f"t{position}", planned=planned, space_size=space) for position, (planned, space) in enumerate(plan)]
    allocator = Allocator(tasks)
    out: dict[str, Round] = {}
    spent: dict[str, int] = {}
    for event, number in events:
        if event == "begin":
            chosen = allocator.next_round(out={key: each.trials for key, each in out.items()})
            if chosen is not None:
                assert chosen.workload_key not in out
                assert chosen.first_trial == spent.get(chosen.workload_key, 0)
                out[chosen.workload_key] = chosen
        elif out:
            key = sorted(out)[number % len(out)]
            ended = out.pop(key)
            trials = min(number, ended.trials) if event == "lose" else ended.trials
            spent[key] = spent.get(key, 0) + trials
            if trials:
                allocator.finished(key, trials=trials, best_latency=1e-3, exhausted=event == "exhaust")
        assert sum(spent.values()) + sum(each.trials for each in out.values()) <= sum(planned for planned, _ in plan)


def test_whole_plans_are_spent_by_rounds_at_once() -> None:
    allocator = Allocator([task(f"t{number}", planned=24) for number in range(5)])
    out: dict[str, Round] = {}
    spent = 0
    while True:
        while len(out) < 3 and (chosen := allocator.next_round(out={key: each.trials for key, each in out.items()})):
            out[chosen.workload_key] = chosen
        if not out:
            break
        ended = out.pop(next(iter(out)))
        spent += ended.trials
        allocator.finished(ended.workload_key, trials=ended.trials, best_latency=1e-3, exhausted=False)
    assert spent == 5 * 24


def test_a_round_at_work_keeps_what_its_task_may_still_spend() -> None:
    """Another task with its plan spent gets nothing of it, until it turns out that there is something left over."""
    allocator = Allocator([task("t0", planned=16), task("t1", planned=8)])
    first = allocator.next_round()
    assert first is not None
    other = allocator.next_round(out={first.workload_key: first.trials})
    assert other is not None
    rounds = {each.workload_key: each for each in (first, other)}
    assert set(rounds) == {"t0", "t1"}
    allocator.finished("t1", trials=8, best_latency=1e-3, exhausted=False)
    assert allocator.next_round(out={"t0": 8}) is None
    allocator.finished("t0", trials=8, best_latency=1e-3, exhausted=True)
    left = allocator.next_round()
    assert left is not None
    assert (left.workload_key, left.trials) == ("t1", 8)


def test_a_kind_of_operator_is_learned_once() -> None:
    tasks = [task("t0", flop=9e6), task("t1", flop=8e6), task("t2", name="dense", flop=1e6)]
    allocator = Allocator(tasks)
    first = allocator.next_round()
    assert first is not None
    assert first.workload_key == "t0"
    second = allocator.next_round(out={"t0": first.trials})
    assert second is not None
    assert second.workload_key == "t2"
