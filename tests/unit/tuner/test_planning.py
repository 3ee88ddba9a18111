from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from domain.jobs import Budget
from domain.tuning_tasks import Coverage, Effort, ExtractedTask
from tuner.search import planning
from tuner.search.planning import ROUND_TRIALS, TRIALS_PER_TASK


def task(
    position: int,
    *,
    weight: int = 1,
    flop: float = 1e6,
    space_size: int = 10_000,
    alternatives: int | None = None,
) -> ExtractedTask:
    return ExtractedTask(
        position=position,
        name="conv2d_NCHWc.x86",
        workload_key=f"w{position}",
        description="",
        weight=weight,
        flop=flop,
        space_size=space_size,
        alternatives=alternatives,
    )


def shares(tasks: list[ExtractedTask], budget: Budget, **options: object) -> list[int]:
    return [planned.trials_planned for planned in planning.plan("j-1", tasks, budget, **options)]  # type: ignore[arg-type]


TASKS = st.lists(
    st.tuples(st.integers(1, 20), st.floats(0, 1e12), st.integers(0, 100_000)), min_size=1, max_size=40
).map(lambda rows: [task(i, weight=w, flop=f, space_size=s) for i, (w, f, s) in enumerate(rows)])


@given(TASKS, st.integers(1, 5000))
def test_a_budget_of_trials_is_spent_where_it_can_be(tasks: list[ExtractedTask], trials: int) -> None:
    given_out = shares(tasks, Budget(trials=trials))
    # One schedule alone is the untuned one.
    room = [min(each.space_size, TRIALS_PER_TASK) if each.space_size > 1 else 0 for each in tasks]
    assert sum(given_out) == min(trials, sum(room))
    assert all(0 <= share <= most for share, most in zip(given_out, room, strict=True))
    if trials >= ROUND_TRIALS * len(tasks):
        assert all(share >= min(ROUND_TRIALS, most) for share, most in zip(given_out, room, strict=True))
    assert shares(tasks, Budget(trials=trials)) == given_out


def test_two_ways_to_compute_an_operator_share_its_work() -> None:
    tasks = [task(0, alternatives=0), task(1, alternatives=0), task(2)]
    direct, winograd, other = shares(tasks, Budget(trials=400))
    assert direct == winograd
    assert abs(direct + winograd - other) <= ROUND_TRIALS
    shared = planning.shares(tasks, Budget(seconds=100.0))
    assert [effort.seconds for effort in shared] == [25.0, 25.0, 50.0]


def test_trials_go_by_weight_times_work() -> None:
    tasks = [task(0, flop=1e6), task(1, flop=4e6), task(2, weight=5, flop=1e6)]
    light, heavy, frequent = shares(tasks, Budget(trials=200))
    assert light < heavy < frequent
    assert light + heavy + frequent == 200


def test_few_trials_go_to_the_heaviest_in_whole_rounds() -> None:
    tasks = [task(0, flop=1e6), task(1, flop=9e6), task(2, flop=5e6)]
    assert shares(tasks, Budget(trials=12)) == [0, 8, 4]


def test_seconds_alone_limit_no_task_but_by_its_space() -> None:
    assert shares([task(0, space_size=20), task(1, space_size=10**9)], Budget(seconds=1)) == [20, TRIALS_PER_TASK]


def test_an_option_caps_every_task() -> None:
    assert shares([task(0), task(1, space_size=5)], Budget(seconds=1), n_trial=30) == [30, 5]


def coverage(trials: int = 0, *, effort: tuple[float, float] | None = None) -> Coverage:
    spent = Effort(trials=effort[0], seconds=effort[1]) if effort else None
    return Coverage(trials=trials, best_latency=1e-3 if trials else None, effort=spent)


def missing(tasks: list[ExtractedTask], budget: Budget, *known: Coverage) -> tuple[list[int], float | None]:
    """Trials for each task, and the seconds that are left."""
    covered = {each.workload_key: what for each, what in zip(tasks, known, strict=True)}
    planned = planning.plan("j-1", tasks, budget, covered=covered)
    assert [each.best_latency for each in planned] == [what.best_latency for what in known]
    trials = {each.extracted.workload_key: each.trials_planned for each in planned}
    return list(trials.values()), planning.seconds(tasks, budget, trials, covered=covered)


PAIR = [task(0), task(1)]
NEW = coverage()


def test_a_task_that_was_searched_as_hard_needs_no_trials() -> None:
    assert missing(PAIR, Budget(trials=100), coverage(50), NEW) == ([0, 50], None)
    assert missing(PAIR, Budget(seconds=10), coverage(3, effort=(3, 5.0)), NEW) == ([0, TRIALS_PER_TASK], 5.0)
    assert missing(PAIR, Budget(seconds=10), coverage(3, effort=(3, 5.0)), coverage(3, effort=(3, 9.0))) == (
        [0, 0],
        0.0,
    )


def test_of_two_limits_the_first_that_was_reached_covers() -> None:
    both = Budget(trials=100, seconds=10)
    assert missing(PAIR, both, coverage(50, effort=(50, 0.1)), coverage(3, effort=(3, 5.0))) == ([0, 0], 0.0)
    assert missing(PAIR, both, coverage(10, effort=(10, 1.0)), NEW) == ([40, 50], 9.0)


def test_a_larger_budget_pays_the_difference() -> None:
    assert missing(PAIR, Budget(trials=200), coverage(50), coverage(50)) == ([50, 50], None)
    known = coverage(20, effort=(20, 2.0))
    assert missing(PAIR, Budget(seconds=10), known, known) == ([TRIALS_PER_TASK - 20] * 2, 6.0)


def test_a_share_that_is_slightly_larger_is_covered() -> None:
    assert missing(PAIR, Budget(trials=110), coverage(50), coverage(50)) == ([0, 0], None)


def test_an_exhausted_search_covers_everything() -> None:
    over = coverage(7, effort=(math.inf, math.inf))
    assert missing(PAIR, Budget(trials=10**6, seconds=10**6), over, over) == ([0, 0], 0.0)


def test_seconds_of_what_is_exhausted_go_to_the_others() -> None:
    over = coverage(7, effort=(math.inf, math.inf))
    assert missing(PAIR, Budget(seconds=10), over, NEW) == ([0, TRIALS_PER_TASK], 10.0)
    # A whole space on record is as good, and what an earlier budget held for the other one is taken off.
    small = [task(0, space_size=20), task(1)]
    assert missing(small, Budget(seconds=100), coverage(20), coverage(effort=(0.0, 10.0))) == (
        [0, TRIALS_PER_TASK],
        90.0,
    )


def test_a_task_that_no_time_was_left_for_is_covered_by_the_same_budget_only() -> None:
    given = coverage(effort=(0.0, 5.0))
    assert missing(PAIR, Budget(seconds=10), given, given) == ([0, 0], 0.0)
    assert missing(PAIR, Budget(seconds=20), given, given) == ([TRIALS_PER_TASK] * 2, 10.0)


def test_a_small_space_that_is_on_record_is_covered() -> None:
    small = [task(0, space_size=20), task(1, space_size=20)]
    assert missing(small, Budget(seconds=10), coverage(20), coverage(12)) == ([0, 8], 10.0)


def test_without_a_runner_nothing_is_planned() -> None:
    planned = planning.without_trials(planning.plan("j-1", PAIR, Budget(trials=10)))
    assert [each.trials_planned for each in planned] == [0, 0]


@given(TASKS, st.integers(1, 5000), st.floats(1, 1e5), st.sets(st.integers(0, 39)))
def test_the_same_job_again_needs_nothing(
    tasks: list[ExtractedTask], trials: int, seconds: float, exhausted: set[int]
) -> None:
    ended = {
        each.workload_key: coverage(1, effort=(math.inf, math.inf)) for each in tasks if each.position in exhausted
    }
    for budget in (Budget(trials=trials), Budget(seconds=seconds), Budget(trials=trials, seconds=seconds)):
        shared = planning.shares(tasks, budget, covered=ended)
        covered = {
            each.workload_key: Coverage(trials=1, best_latency=1e-3, effort=share)
            for each, share in zip(tasks, shared, strict=True)
        } | ended
        assert shares(tasks, budget, covered=covered) == [0] * len(tasks)


def test_a_model_without_tuning_tasks_has_an_empty_plan() -> None:
    assert planning.plan("j-1", [], Budget(trials=10)) == []
