from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from domain import errors
from domain.artifacts import Variant
from domain.jobs import Budget, EventKind, JobEvent, JobState, Stage
from domain.stage_results import BaselineResult, StageResults
from tests.support import stage_results
from worker import total_limit
from worker.total_limit import TotalLimit

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


def states(*changes: tuple[JobState, float]) -> list[JobEvent]:
    return [
        JobEvent(id=place, job_id="j", kind=EventKind.STATE, data={"state": state.value}, at=T0 + timedelta(seconds=at))
        for place, (state, at) in enumerate(changes)
    ]


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ([(JobState.QUEUED, 0)], 0.0),
        ([(JobState.QUEUED, 0), (JobState.RUNNING, 40)], 60.0),
        ([(JobState.RUNNING, 0), (JobState.QUEUED, 10), (JobState.RUNNING, 70)], 40.0),
        ([(JobState.RUNNING, 0), (JobState.CANCELING, 90)], 100.0),
        ([(JobState.RUNNING, 130)], 0.0),
    ],
)
def test_time_in_the_queue_is_not_running_time(changes: list[tuple[JobState, float]], seconds: float) -> None:
    assert total_limit.running_seconds(states(*changes), T0 + timedelta(seconds=100)) == seconds


def limit(seconds: float | None, *, before: float = 0.0) -> tuple[TotalLimit, list[float]]:
    now = [1000.0]
    return TotalLimit(seconds=seconds, before=before, now=lambda: now[0]), now


def measured() -> StageResults:
    baseline = stage_results.made(
        BaselineResult,
        build_seconds=20.0,
        verify_seconds=4.0,
        start_seconds=2.0,
        seconds={Variant.UNTUNED: 0.005, Variant.REFERENCE: 0.004},
    )
    return StageResults([baseline])


def test_each_stage_keeps_back_what_the_following_ones_need() -> None:
    made, now = limit(600.0)
    now[0] += 100.0
    left = []
    for stage in (Stage.PLAN, Stage.TUNE, Stage.COMPILE, Stage.VERIFY):
        made.enter(stage, measured())
        left.append(made.left)
    assert left[0] == left[1] == pytest.approx(500 - 30 - 6 - 20 - 5, abs=3)
    assert left[2] == pytest.approx(500 - 6 - 20 - 5, abs=3)
    assert left[3] == pytest.approx(500 - 20 - 5, abs=3)
    made.enter(Stage.BENCHMARK, measured())
    assert (made.left, made.unspent) == (None, 500.0), "what was kept back is its time"


@pytest.mark.parametrize(("seconds", "kept"), [(100.0, 20.0), (4200.0, 60.0)])
def test_until_a_build_is_verified_a_benchmark_is_kept_back(seconds: float, kept: float) -> None:
    made, now = limit(seconds, before=30.0)
    made.enter(Stage.BASELINE, StageResults())
    assert made.left == seconds - 30.0 - kept
    with made.alternative(last=False):
        assert made.left == (seconds - 30.0 - kept) / 2
    with made.alternative(last=True):
        assert made.shortened(1e6) == seconds - 30.0 - kept
    assert (made.shortened(2.0), made.shortened(None)) == (2.0, seconds - 30.0 - kept)
    now[0] += seconds
    with pytest.raises(errors.TimeLimit) as caught:
        made.enter(Stage.BASELINE, StageResults())
    assert caught.value.details == {
        "stage": "baseline",
        "total_seconds": seconds,
        "running_seconds": seconds + 30.0,
    }
    made.enter(Stage.PLAN, measured())
    assert made.is_reached, "the verified build is published, so this is no error"


def test_a_budget_is_cut_to_what_is_left() -> None:
    made, _ = limit(600.0)
    made.enter(Stage.TUNE, measured())
    left = made.left_to_search
    assert left is not None
    assert left < 600.0 - 61.0
    assert made.cut(Budget(seconds=36_000)) == Budget(seconds=left)
    assert made.cut(Budget(trials=5)) == Budget(trials=5, seconds=left)
    assert made.cut(Budget(seconds=30)) == Budget(seconds=30)
    assert made.cut_seconds(36_000, spent=100.0) == left + 100.0


def test_without_a_limit_nothing_is_cut() -> None:
    made, now = limit(None)
    now[0] += 1e9
    made.enter(Stage.IMPORT, StageResults())
    assert (made.left, made.left_to_search, made.shortened(7.0), made.cut_seconds(None)) == (None, None, 7.0, None)
    assert made.cut(Budget(seconds=30)) == Budget(seconds=30)


@pytest.mark.parametrize(
    ("budget", "seconds"),
    [
        (Budget(seconds=30), 30.0),
        (Budget(seconds=5), 30.0),
        (Budget(trials=64), 64.0),
        (Budget(seconds=600, trials=2000), 600.0),
    ],
)
def test_the_stages_around_the_search_may_take_as_long_as_the_search(budget: Budget, seconds: float) -> None:
    assert total_limit.around_seconds(budget) == seconds


def test_later_sizes_may_take_no_more_than_their_search() -> None:
    assert total_limit.around_seconds(Budget(seconds=12), is_later_size=True) == 12.0


def test_the_time_after_the_search_counts_from_its_end() -> None:
    made, now = limit(None)
    made.enter(Stage.TUNE, measured())
    now[0] += 30.0
    assert made.since_search == 0.0
    for stage in (Stage.COMPILE, Stage.VERIFY, Stage.BENCHMARK):
        made.enter(stage, measured())
        now[0] += 10.0
    assert made.since_search == 30.0


@pytest.mark.parametrize(("before", "after", "left"), [(20.0, 10.0, 20.0), (40.0, 5.0, 7.5), (55.0, 0.0, 0.0)])
def test_timings_are_repeated_in_what_earlier_stages_left(before: float, after: float, left: float) -> None:
    made, now = limit(None)
    made.around = 30.0
    now[0] += before
    made.enter(Stage.COMPILE, measured())
    now[0] += after
    assert made.left_to_repeat == pytest.approx(left)
