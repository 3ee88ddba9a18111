from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.artifacts import Timing, Variant, speedup
from domain.ports import Canceled, OnEvent
from tests.support.tuner.fakes import FakeEngine
from tuner.results.timing import (
    PROCESSES,
    ROUNDS,
    SAMPLES_PER_ROUND,
    Timed,
    alone,
    interleave,
    least_seconds,
    of_attempts,
    of_samples,
    percentile,
    speedup_interval,
)

Json = dict[str, Any]


def engine(seconds: Callable[[], float], log: list[str], name: str) -> FakeEngine:
    def take_time(params: Json, _: OnEvent) -> Json:
        log.append(name)
        return {"samples": [seconds() for _ in range(params["repeat"])]}

    return FakeEngine({"time": take_time})


def timed(log: list[str], **seconds: float) -> list[Timed[Variant]]:
    return [
        Timed(name=Variant(name), engine=engine(lambda value=value: value, log, name), params={"bundle": "/b"})
        for name, value in seconds.items()
    ]


def run(parties: list[Timed[Variant]], **options: Any) -> dict[Variant, Timing]:
    return interleave(parties, pause=lambda _: None, **options)


# taking turns


def test_every_variant_is_timed_in_every_round_in_changing_order() -> None:
    log: list[str] = []
    timings = run(timed(log, reference=1e-3, untuned=2e-3, tuned=1.5e-3), rounds=10, samples=3, seed=1)
    assert [len(each.samples) for each in timings.values()] == [30, 30, 30]
    turns = [tuple(log[start : start + 3]) for start in range(6, len(log), 3)]
    assert len(turns) == 10
    assert all(sorted(turn) == ["reference", "tuned", "untuned"] for turn in turns)
    assert len(set(turns)) > 2
    again: list[str] = []
    run(timed(again, reference=1e-3, untuned=2e-3, tuned=1.5e-3), rounds=10, samples=3, seed=1)
    assert again == log


@pytest.mark.parametrize(("seconds", "number"), [(5.0, 1), (1e-2, 2), (1e-3, 20), (1e-5, 2000), (0.0, 10_000)])
def test_a_sample_lasts_long_enough(seconds: float, number: int) -> None:
    party = timed([], untuned=seconds)[0]
    run([party], rounds=1)
    assert isinstance(party.engine, FakeEngine)
    asked = [params for _, params in party.engine.requests]
    assert asked[0]["number"] == 1
    assert asked[-1] == {"bundle": "/b", "number": number, "repeat": SAMPLES_PER_ROUND + 1}


def test_a_benchmark_can_be_canceled() -> None:
    with pytest.raises(Canceled):
        run(timed([], untuned=1e-3), canceled=lambda: True)


def test_time_can_cut_a_benchmark_short_but_not_below_three_rounds() -> None:
    timings = run(timed([], untuned=1e-3), rounds=50, samples=2, seconds=0.0)
    assert len(timings[Variant.UNTUNED].samples) == 6


def test_the_rounds_are_divided_among_processes() -> None:
    started: list[list[str]] = []

    def restart() -> list[Timed[Variant]]:
        started.append([])
        return timed(started[-1], untuned=1e-3, tuned=1e-3 * (1 + len(started)))

    timings = run(restart(), rounds=20, samples=3, restart=restart)
    assert len(started) == PROCESSES
    # In a new process one slice warms up; the first one also counts the runs of a sample.
    assert [len(log) for log in started] == [2 * (2 + 4), *[2 * (1 + 4)] * (PROCESSES - 1)]
    slower = timings[Variant.TUNED]
    assert (slower.processes, len(slower.samples)) == (PROCESSES, 60)
    assert slower.samples[::12] == pytest.approx([2e-3, 3e-3, 4e-3, 5e-3, 6e-3])
    assert run(restart(), rounds=20, samples=3)[Variant.TUNED].processes == 1


def test_a_benchmark_that_ends_early_has_fewer_processes_and_a_wider_interval() -> None:
    def width(seconds: float, *, processes: int, rounds: int) -> float:
        places = itertools.cycle([1e-3, 1.01e-3, 0.99e-3])

        def restart() -> list[Timed[Variant]]:
            place = next(places)
            return [Timed(name=Variant.TUNED, engine=engine(lambda: place, [], "tuned"), params={})]

        found = run(restart(), seconds=seconds, restart=restart)[Variant.TUNED]
        assert (found.processes, len(found.samples)) == (processes, rounds * SAMPLES_PER_ROUND)
        assert found.ci_low is not None
        assert found.ci_high is not None
        return found.ci_high - found.ci_low

    assert width(0.0, processes=3, rounds=3) > 1.5 * width(1e9, processes=PROCESSES, rounds=ROUNDS)


def test_the_shortest_benchmark_is_kept_back_for() -> None:
    assert least_seconds(3, run=1e-3, start=2.0) == pytest.approx(19.6, abs=0.1)
    assert least_seconds(3, run=1.0, start=2.0) > 60.0


# one by itself


def waking() -> Timed[Variant]:
    """A build whose threads share a core in the first seconds of each request, and so take twice as long."""

    def take_time(params: Json, _: OnEvent) -> Json:
        samples, passed = [], 0.0
        for _sample in range(params["repeat"]):
            started = passed
            for _run in range(params["number"]):
                passed += 3e-4 * (2 if passed < 0.015 else 1)
            samples.append((passed - started) / params["number"])
        return {"samples": samples}

    return Timed(name=Variant.TUNED, engine=FakeEngine({"time": take_time}), params={"bundle": "/b"})


@pytest.mark.parametrize("number", [None, 1, 7, 500])
def test_a_build_by_itself_takes_as_long_as_among_others(number: int | None) -> None:
    compared = run([waking()])[Variant.TUNED]
    counted, samples = alone(waking(), samples=50, number=number, pause=lambda _: None)
    assert counted == (number or 67)
    assert len(samples) == 50
    assert samples == pytest.approx([compared.median] * 50)
    assert compared.median == pytest.approx(3e-4)


@pytest.mark.parametrize(
    ("samples", "slices"), [(1, [1]), (10, [3, 3, 3, 1]), (60, [3] * ROUNDS), (200, [10] * ROUNDS)]
)
def test_samples_of_one_build_are_spread_over_slices(samples: int, slices: list[int]) -> None:
    party, pauses = timed([], tuned=1e-3)[0], list[float]()
    assert alone(party, samples=samples, pause=pauses.append) == (20, [1e-3] * samples)
    assert isinstance(party.engine, FakeEngine)
    assert [params["repeat"] - 1 for _, params in party.engine.requests[2:]] == slices
    assert len(pauses) == len(slices)


def test_a_slow_build_is_run_few_times() -> None:
    party = timed([], tuned=5.0)[0]
    assert alone(party, samples=3, pause=lambda _: None) == (1, [5.0] * 3)
    assert isinstance(party.engine, FakeEngine)
    assert sum(params["repeat"] for _, params in party.engine.requests) == 8


# statistics


@given(st.lists(st.floats(1e-7, 1e3), min_size=1, max_size=50))
def test_statistics_agree_with_each_other(samples: list[float]) -> None:
    result = of_samples(samples)
    assert result.samples == tuple(samples)
    assert result.min <= result.median <= result.p90 <= result.p99 <= result.max
    assert result.min * (1 - 1e-9) <= result.mean <= result.max * (1 + 1e-9)
    assert result.median == statistics.median(samples)


def test_intervals_hold_the_median_over_processes() -> None:
    """Processes differ by a percent, their samples by less: samples of one process say nothing about the next one."""
    draw = random.Random(3)  # noqa: S311 - a simulation

    def benchmark(processes: int) -> bool:
        levels = [draw.gauss(1e-3, 1e-5) for _ in range(processes)]
        groups = [[level * (1 + abs(draw.gauss(0, 2e-3))) for _ in range(60 // processes)] for level in levels]
        found = of_samples(*groups)
        assert found.ci_low is not None
        assert found.ci_high is not None
        widths.append((found.ci_high - found.ci_low) / found.median)
        # The median of half-normal noise is 0.67 of its deviation.
        return found.ci_low <= 1e-3 * (1 + 0.67 * 2e-3) <= found.ci_high

    widths: list[float] = []
    assert sum(benchmark(PROCESSES) for _ in range(60)) >= 55
    # 2.78 standard errors of the mean of five on either side, and a quarter more as a median is less precise.
    assert 0.02 < statistics.median(widths) < 0.05
    assert sum(benchmark(1) for _ in range(60)) < 20


@pytest.mark.parametrize(
    ("levels", "low", "high"),
    [
        # Student's t with 1 and 4 degrees of freedom over the normal quantile, times the root of 2 / 1 and of 5 / 4, as
        # exponents of the ratios to the median.
        ([1.0, 1.1], 1.05 * (1.0 / 1.05) ** (1.4142 * 12.71 / 1.96), 1.05 * (1.1 / 1.05) ** (1.4142 * 12.71 / 1.96)),
        (
            [1.0, 1.01, 1.02, 1.03, 1.04],
            1.02 * (1.0 / 1.02) ** (1.1180 * 2.78 / 1.96),
            1.02 * (1.04 / 1.02) ** (1.1180 * 2.78 / 1.96),
        ),
    ],
)
def test_intervals_over_few_processes_are_widened(levels: list[float], low: float, high: float) -> None:
    found = of_samples(*([level] * 12 for level in levels))
    assert (found.ci_low, found.ci_high) == pytest.approx((low, high), rel=1e-4)


def test_the_interval_of_one_process_is_of_ranks() -> None:
    """Conover's ranks for 60 samples: 22 and 39 with the rounding away from the median."""
    found = of_samples([float(rank) for rank in range(1, 61)])
    assert (found.ci_low, found.ci_high) == (22.0, 39.0)
    assert of_samples([1.0] * 7).ci_low is None


def test_ratios_are_precise_where_times_are_not() -> None:
    """A machine that half of the time is half as fast, and processes of the builds that differ by a percent."""
    draw = random.Random(7)  # noqa: S311 - a simulation

    def benchmark() -> bool:
        speeds = [[draw.choice((1.0, 2.0))] * SAMPLES_PER_ROUND for _ in range(ROUNDS)]
        of, over = (of_samples(*_processes(level, speeds, draw)) for level in (1e-3, 1.2e-3))
        interval = speedup_interval(of, over)
        assert of.ci_low is not None
        assert of.ci_high is not None
        assert interval is not None
        of_times.append(of.ci_high / of.ci_low)
        of_ratios.append(interval[1] / interval[0])
        assert interval[0] <= speedup(of, over) <= interval[1]
        return interval[0] <= 1.2 <= interval[1]

    of_times: list[float] = []
    of_ratios: list[float] = []
    assert sum(benchmark() for _ in range(60)) >= 55
    assert statistics.median(of_times) > 1.5
    assert statistics.median(of_ratios) < 1.06


def _processes(level: float, speeds: Sequence[Sequence[float]], draw: random.Random) -> list[list[float]]:
    share = ROUNDS // PROCESSES
    groups = []
    for first in range(0, ROUNDS, share):
        own = draw.gauss(level, level / 100)
        groups.append([own * speed * draw.gauss(1, 2e-3) for each in speeds[first : first + share] for speed in each])
    return groups


def test_ratios_of_attempts_are_over_the_processes_of_all() -> None:
    of, over = (of_attempts([of_samples([level] * 6, [level] * 3)] * 2) for level in (1.0, 1.5))
    assert (of.processes, of.per_process) == (4, (6, 3, 6, 3))
    assert (speedup(of, over), speedup_interval(of, over)) == (1.5, (1.5, 1.5))


def test_without_common_rounds_the_ratio_is_that_of_medians() -> None:
    of, over = of_samples([1.0] * 9), of_samples([1.5] * 12)
    assert (speedup(of, over), speedup_interval(of, over)) == (1.5, None)
    few = of_samples([1.0] * 3)
    assert (speedup(few, few), speedup_interval(few, few)) == (1.0, None)


def test_percentiles_are_numpys() -> None:
    ordered = [1.0, 2.0, 3.0, 4.0, 10.0]
    assert percentile(ordered, 0.9) == pytest.approx(7.6)
    assert percentile(ordered, 0.99) == pytest.approx(9.76)
    assert percentile([7.0], 0.99) == 7.0
    assert of_samples([1.0, 3.0]).std == 1.0


def test_the_median_lies_in_its_confidence_interval() -> None:
    generator = random.Random(0)  # noqa: S311 - noise
    few, many = (of_samples([1 + abs(generator.gauss(0, 0.05)) for _ in range(count)]) for count in (20, 400))
    for result in (few, many):
        assert result.ci_low is not None
        assert result.ci_high is not None
        assert result.ci_low <= result.median <= result.ci_high
    assert many.ci_high - many.ci_low < (few.ci_high - few.ci_low) / 2  # type: ignore[operator]


def test_the_interval_holds_the_true_median_about_19_times_in_20() -> None:
    generator = random.Random(1)  # noqa: S311 - noise
    held = 0
    for _ in range(400):
        result = of_samples([generator.expovariate(1.0) for _ in range(60)])
        held += (result.ci_low or 0) <= 0.6931 <= (result.ci_high or 0)
    assert 0.92 <= held / 400 <= 0.99


def test_a_handful_of_samples_has_no_interval() -> None:
    result = of_samples([1.0, 2.0, 3.0])
    assert (result.ci_low, result.ci_high) == (None, None)
