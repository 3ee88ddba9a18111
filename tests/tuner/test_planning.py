from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from domain.jobs import Budget
from domain.tuning_tasks import ExtractedTask
from tuner import planning
from tuner.planning import ROUND_TRIALS, TRIALS_PER_TASK, Coverage


def task(position: int, *, weight: int = 1, flop: float = 1e6, space_size: int = 10_000) -> ExtractedTask:
    return ExtractedTask(
        position=position,
        name="conv2d_NCHWc.x86",
        workload_key=f"w{position}",
        description="",
        weight=weight,
        flop=flop,
        space_size=space_size,
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


def test_what_is_on_record_is_not_paid_for_again() -> None:
    covered = {
        "w0": Coverage(trials=TRIALS_PER_TASK, best_latency=1e-3),
        "w1": Coverage(trials=TRIALS_PER_TASK - 10, best_latency=2e-3),
    }
    plan = planning.plan("j-1", [task(0), task(1), task(2)], Budget(trials=100), covered=covered)
    assert [each.trials_planned for each in plan] == [0, 10, 90]
    assert [each.best_latency for each in plan] == [1e-3, 2e-3, None]
    assert {each.job_id for each in plan} == {"j-1"}
    everything = {f"w{i}": Coverage(trials=9999, best_latency=1.0) for i in range(3)}
    assert shares([task(0), task(1), task(2)], Budget(trials=100), covered=everything) == [0, 0, 0]


def test_a_model_without_tuning_tasks_has_an_empty_plan() -> None:
    assert planning.plan("j-1", [], Budget(trials=10)) == []
