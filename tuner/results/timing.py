"""Interleaved timing of builds.

The builds run in separate processes, in short slices in shuffled order, so that disturbances affect all of them alike
and cancel out in a comparison by rounds.

Two processes of one build differ by a percent or more, as memory and threads are placed differently, and no number of
samples of one of them shows that. So a benchmark starts every build several times, and its intervals are those of
processes (Kalibera and Jones, Rigorous benchmarking in reasonable time, ISMM 2013).
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from domain.artifacts import Timing, Variant
from domain.ports import Canceled, Engine

Name = TypeVar("Name", bound=str)

ROUNDS = 20
PROCESSES = 5
"""Processes of each build in a benchmark; the rounds are divided among them."""
LEAST_PROCESSES = 3
"""Processes of each build in a benchmark that ends early; the interval of so few is wide."""
SAMPLES_PER_ROUND = 3
SAMPLE_SECONDS = 0.02
"""Minimum duration of a sample; shorter ones would measure the clock and the call."""
PAUSE_SECONDS = 0.02
_MOST_RUNS = 10_000
_SURELY_ONE = 10 * SAMPLE_SECONDS
"""Seconds of a first run that is certainly long enough to be a sample by itself."""
_LEAST_FOR_INTERVAL = 8
_NORMAL_95 = 1.96
_STUDENT_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Quantiles of Student's t distribution, two-sided, from one degree of freedom on."""
_RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Timed(Generic[Name]):
    """A build, and its ``time`` request without counts."""

    name: Name
    engine: Engine
    params: dict[str, Any]


def reference(engine: Engine, model: Path, inputs: Path, *, threads: int) -> Timed[Variant]:
    params = {"path": str(model), "inputs": str(inputs), "threads": threads}
    return Timed(name=Variant.REFERENCE, engine=engine, params=params)


def compiled(name: Name, engine: Engine, bundle: Path, inputs: Path, *, place: Mapping[str, Any]) -> Timed[Name]:
    """Return the request for a compiled build; ``place`` has ``threads`` and, unless it is this machine's CPU,
    ``target`` and ``runner``."""
    params = {"bundle": str(bundle), "inputs": str(inputs), **place}
    return Timed(name=name, engine=engine, params=params)


def interleave(
    timed: Sequence[Timed[Name]],
    *,
    rounds: int = ROUNDS,
    samples: int = SAMPLES_PER_ROUND,
    seed: int = 0,
    timeout: float = 600,
    seconds: float | None = None,
    pause: Callable[[float], None] = time.sleep,
    between: Callable[[], None] | None = None,
    restart: Callable[[], Sequence[Timed[Name]]] | None = None,
    canceled: Callable[[], bool] | None = None,
) -> dict[Name, Timing]:
    """Time each build ``samples`` times in each of ``rounds``; equal positions belong to the same round.

    The runs per sample are determined first, which also warms up. ``between`` is called before each round. ``restart``
    returns the builds in new processes; with it, the rounds are divided among ``PROCESSES`` of each build. ``seconds``
    ends the benchmark early, after at least three rounds, or a round in each of ``LEAST_PROCESSES``. Raises
    EngineError, Canceled.
    """
    numbers = {each.name: _number(each, timeout, canceled) for each in timed}
    taken: dict[Name, list[list[float]]] = {each.name: [[]] for each in timed}
    order = list(timed)
    share = math.ceil(rounds / PROCESSES)
    shuffler = random.Random(seed)  # noqa: S311 - an order, not a secret
    started = time.monotonic()
    for position in range(rounds):
        if canceled and canceled():
            raise Canceled
        begins = restart is not None and position % share == 0
        if seconds is not None and time.monotonic() - started > seconds:
            if position >= (3 if restart is None else LEAST_PROCESSES * share):
                break
            if restart is not None and not begins:
                # The rest of this process's rounds: another process tells more.
                continue
        if restart and begins and position:
            order = list(restart())
            for each in order:
                # The first runs of a process are slower.
                _slice(each, numbers[each.name], 1, timeout, canceled)
                taken[each.name].append([])
        if between:
            between()
        shuffler.shuffle(order)
        for each in order:
            taken[each.name][-1] += _slice(each, numbers[each.name], samples, timeout, canceled)
            pause(PAUSE_SECONDS)
    return {name: of_samples(*groups) for name, groups in taken.items()}


def alone(
    timed: Timed[Any], *, samples: int, number: int | None = None, pause: Callable[[float], None] = time.sleep
) -> tuple[int, list[float]]:
    """Time one build comparably to ``interleave``; returns the runs per sample, and the samples.

    Samples of fewer runs, with ``number``, are also measured in slices after an equally long warm-up: threads that wake
    up share a core for some milliseconds, until the kernel moves them. Raises EngineError.
    """
    lasting = _number(timed, None, None)
    number = number or lasting
    size = max(SAMPLES_PER_ROUND, math.ceil(samples / ROUNDS))
    taken: list[float] = []
    while len(taken) < samples:
        count = min(size, samples - len(taken))
        taken += _slice(timed, number, count, None, None, warm=math.ceil(lasting / number))
        pause(PAUSE_SECONDS)
    return number, taken


def least_seconds(builds: int, *, run: float, start: float) -> float:
    """Return the seconds that the shortest benchmark of so many builds takes, at most.

    ``run``: seconds of a run; ``start``: seconds until a process of a build has started.
    """
    sample = max(SAMPLE_SECONDS, run)
    # Each process also warms up, and the first one determines the runs per sample.
    return builds * (LEAST_PROCESSES * (start + (SAMPLES_PER_ROUND + 3) * sample) + 8 * sample)


def of_samples(*groups: Sequence[float]) -> Timing:
    """Return statistics of seconds per run, with one group of samples for each process that was timed.

    Percentiles are interpolated linearly.
    """
    samples = [sample for group in groups for sample in group]
    return _statistics(samples, _interval_of(groups), per_process=[len(group) for group in groups])


def speedup_interval(of: Timing, over: Timing) -> tuple[float, float] | None:
    """Return a 95 % confidence interval of ``speedup``, over processes if the timings tell which sample is whose.

    None with few samples, and if the builds were not timed in the same rounds.
    """
    if of.per_process != over.per_process or len(of.samples) != len(over.samples):
        return None
    ratios = iter([theirs / ours for ours, theirs in zip(of.samples, over.samples, strict=True)])
    low, high = _interval_of([list(islice(ratios, count)) for count in of.per_process or (len(of.samples),)])
    return None if low is None or high is None else (low, high)


def of_attempts(attempts: Sequence[Timing]) -> Timing:
    """Return statistics over several benchmarks of one build, whose interval holds the interval of each.

    On a noisy machine benchmarks of the same build differ by more than the processes of one do.
    """
    lows = [each.ci_low for each in attempts if each.ci_low is not None]
    highs = [each.ci_high for each in attempts if each.ci_high is not None]
    return _statistics(
        [sample for each in attempts for sample in each.samples],
        (min(lows, default=None), max(highs, default=None)),
        per_process=[count for each in attempts for count in each.per_process],
    )


def _statistics(
    samples: Sequence[float], interval: tuple[float | None, float | None], *, per_process: Sequence[int]
) -> Timing:
    ordered = sorted(samples)
    low, high = interval
    return Timing(
        samples=tuple(samples),
        mean=statistics.fmean(ordered),
        median=statistics.median(ordered),
        p90=percentile(ordered, 0.9),
        p99=percentile(ordered, 0.99),
        min=ordered[0],
        max=ordered[-1],
        std=statistics.pstdev(ordered),
        ci_low=low,
        ci_high=high,
        processes=len(per_process),
        per_process=tuple(per_process),
    )


def _interval_of(groups: Sequence[Sequence[float]]) -> tuple[float, float] | tuple[None, None]:
    """Return a 95 % confidence interval of the median; over processes, with one group of values for each of several."""
    return _interval_of_processes(groups) if len(groups) > 1 else _interval(sorted(groups[0]))


def _interval_of_processes(groups: Sequence[Sequence[float]]) -> tuple[float, float] | tuple[None, None]:
    """Return a 95 % confidence interval of the median over processes: the bootstrap draws processes, then samples.

    Its percentiles are moved away from the median by what the bootstrap of few processes lacks (Hesterberg, What
    teachers should know about the bootstrap, The American Statistician 69, 2015, section 4.1.3).
    """
    samples = [sample for group in groups for sample in group]
    if len(samples) < _LEAST_FOR_INTERVAL:
        return None, None
    draw = random.Random(0)  # noqa: S311 - a resample, not a secret
    medians = sorted(
        statistics.median(
            [sample for group in draw.choices(groups, k=len(groups)) for sample in draw.choices(group, k=len(group))]
        )
        for _ in range(_RESAMPLES)
    )
    freedom = len(groups) - 1
    student = _STUDENT_95[min(freedom, len(_STUDENT_95)) - 1]
    wider = math.sqrt(len(groups) / freedom) * student / _NORMAL_95
    median = statistics.median(samples)
    low, high = percentile(medians, 0.025), percentile(medians, 0.975)
    # In ratios: a difference of few and unequal processes would reach below zero.
    return median * (low / median) ** wider, median * (high / median) ** wider


def _interval(ordered: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """Return a 95 % confidence interval of the median, distribution-free, from order statistics.

    Normal approximation of the binomial ranks (Conover, Practical Nonparametric Statistics, section 3.2; Hoefler and
    Belli, SC 2015, rule 5). Samples of one slice are correlated, so it is rather too narrow.
    """
    count = len(ordered)
    if count < _LEAST_FOR_INTERVAL:
        return None, None
    half = _NORMAL_95 * math.sqrt(count) / 2
    low, high = math.floor(count / 2 - half), math.ceil(count / 2 + half)
    return ordered[max(0, low - 1)], ordered[min(count - 1, high)]


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Return a percentile like ``numpy.percentile``; ``ordered`` must be ascending."""
    place = fraction * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _number(timed: Timed[Any], timeout: float | None, canceled: Callable[[], bool] | None) -> int:
    """Return the runs per sample; measured twice, as the first runs of a process are slower."""
    number = 1
    for _ in range(2):
        quickest = min(_slice(timed, number, 3, timeout, canceled))
        if quickest > _SURELY_ONE:
            return 1
        number = min(_MOST_RUNS, max(1, math.ceil(SAMPLE_SECONDS / max(quickest, 1e-9))))
    return number


def _slice(
    timed: Timed[Any],
    number: int,
    samples: int,
    timeout: float | None,
    canceled: Callable[[], bool] | None,
    *,
    warm: int = 1,
) -> list[float]:
    # The first samples run with cold caches and idle cores.
    params = {**timed.params, "number": number, "repeat": samples + warm}
    answer = timed.engine.request("time", params, timeout=timeout, canceled=canceled)
    return [float(sample) for sample in answer["samples"]][warm:]
