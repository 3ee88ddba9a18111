"""Shares of tuning tasks in the model's time: never of seconds and FLOPs at once, and of each operator once."""

from __future__ import annotations

import pytest

from api.jobs import schemas as job_schemas
from api.jobs.pages.job_tables import TaskLine, task_lines


def test_all_measured() -> None:
    lines = _lines([_task(0, weight=2), _task(1)], defaults={0: 1.0, 1: 6.0}, best={0: 1.0, 1: 2.0})
    assert _shares(lines) == {0: (0.25, 0.5), 1: (0.75, 0.5)}
    assert [line.task.position for line in lines] == [1, 0]
    assert not any(line.is_guess for line in lines)


def test_without_defaults_flops_tell_of_before_and_seconds_of_after() -> None:
    lines = _lines([_task(0, flop=3e9), _task(1, flop=1e9)], best={0: 2e-6, 1: 6e-6})
    assert _shares(lines) == {0: (0.75, 0.25), 1: (0.25, 0.75)}
    assert all(line.is_guess for line in lines)


def test_after_is_unknown_while_one_operator_was_never_measured() -> None:
    """A matmul of 368 ns beside a sum that nobody measured: its FLOPs are not seconds."""
    lines = _lines([_task(0, flop=5e5), _task(1, flop=256)], best={0: 368e-9})
    assert [line.after for line in lines] == [None, None]
    assert sum(line.before or 0 for line in lines) == pytest.approx(1)


def test_a_default_that_nobody_improved_is_what_runs() -> None:
    lines = _lines([_task(0), _task(1)], defaults={0: 4.0, 1: 4.0}, best={0: 1.0})
    assert _shares(lines) == {0: (0.5, 0.2), 1: (0.5, 0.8)}


def test_a_missing_default_counts_at_the_rate_of_the_others() -> None:
    lines = _lines([_task(0, flop=1e9), _task(1, flop=3e9)], defaults={0: 2.0}, best={0: 1.0, 1: 1.0})
    assert _shares(lines) == {0: (0.25, 0.5), 1: (0.75, 0.5)}
    assert {line.task.position: line.is_guess for line in lines} == {0: False, 1: True}


def test_the_faster_of_two_ways_counts_alone() -> None:
    tasks, ways = [_task(0), _task(1), _task(2)], {0: None, 1: 7, 2: 7}
    lines = _lines(tasks, ways, defaults={0: 1.0, 1: 3.0, 2: 5.0}, best={0: 1.0, 1: 2.0, 2: 1.0})
    assert _shares(lines) == {0: (0.25, 0.5), 1: (0.75, None), 2: (None, 0.5)}
    assert [line.task.position for line in lines] == [1, 2, 0]


def test_a_way_that_was_never_measured_takes_nothing_from_the_other() -> None:
    lines = _lines([_task(0), _task(1), _task(2)], {1: 7, 2: 7}, best={0: 3e-6, 2: 1e-6})
    assert _shares(lines) == {0: (0.5, 0.75), 1: (None, None), 2: (0.5, 0.25)}


def test_with_nothing_measured_flops_alone_tell() -> None:
    lines = _lines([_task(0, flop=0.0), _task(1, flop=0.0)])
    assert _shares(lines) == {0: (0.5, None), 1: (0.5, None)}
    assert _lines([]) == []


def test_flops_of_winograds_templates_are_those_of_the_direct_convolution() -> None:
    names = ["conv2d_winograd_NCHWc.x86", "conv2d_NCHWc.x86", "fused_conv2d_winograd", "conv2d_winograd_nhwc"]
    lines = [_lines([_task(0).model_copy(update={"name": name})])[0] for name in names]
    assert [line.counts_direct for line in lines] == [True, False, False, False]


def _lines(
    tasks: list[job_schemas.Task],
    alternatives: dict[int, int | None] | None = None,
    *,
    defaults: dict[int, float] | None = None,
    best: dict[int, float] | None = None,
) -> list[TaskLine]:
    return task_lines(tasks, alternatives or {}, defaults=defaults or {}, best=best or {})


def _shares(lines: list[TaskLine]) -> dict[int, tuple[float | None, float | None]]:
    return {line.task.position: (line.before, line.after) for line in lines}


def _task(position: int, *, weight: int = 1, flop: float = 1e9) -> job_schemas.Task:
    return job_schemas.Task(
        position=position,
        name="dense",
        description="",
        workload_key=f"key {position}",
        weight=weight,
        flop=flop,
        space_size=10,
        trials_planned=8,
        trials_done=8,
        best_latency=None,
        best_gflops=None,
        failures={},
    )
