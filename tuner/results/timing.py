"""Interleaved timing of builds.

The builds run in separate processes, in short slices in shuffled order, so that disturbances affect all of them alike
and cancel out in a comparison by rounds.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from domain.artifacts import Timing, Variant
from domain.ports import Canceled, Engine

Name = TypeVar("Name", bound=str)

ROUNDS = 20
SAMPLES_PER_ROUND = 3
SAMPLE_SECONDS = 0.02
"""Minimum duration of a sample; shorter ones would measure the clock and the call."""
PAUSE_SECONDS = 0.02
_MOST_RUNS = 10_000
_SURELY_ONE = 10 * SAMPLE_SECONDS
"""Seconds of a first run that is certainly long enough to be a sample by itself."""
_LEAST_FOR_INTERVAL = 8
_NORMAL_95 = 1.96


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
    canceled: Callable[[], bool] | None = None,
) -> dict[Name, Timing]:
    """Time each build ``samples`` times in each of ``rounds``; equal positions belong to the same round.

    The runs per sample are determined first, which also warms up. ``seconds`` ends the benchmark early, after at least
    three rounds; ``between`` is called before each round. Raises EngineError, Canceled.
    """
    numbers = {each.name: _number(each, timeout, canceled) for each in timed}
    taken: dict[Name, list[float]] = {each.name: [] for each in timed}
    order = list(timed)
    shuffler = random.Random(seed)  # noqa: S311 - an order, not a secret
    started = time.monotonic()
    for position in range(rounds):
        if canceled and canceled():
            raise Canceled
        if seconds is not None and position >= 3 and time.monotonic() - started > seconds:
            break
        if between:
            between()
        shuffler.shuffle(order)
        for each in order:
            taken[each.name] += _slice(each, numbers[each.name], samples, timeout, canceled)
            pause(PAUSE_SECONDS)
    return {name: of_samples(values) for name, values in taken.items()}


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


def of_samples(samples: Sequence[float]) -> Timing:
    """Return statistics of seconds per run; percentiles are interpolated linearly."""
    ordered = sorted(samples)
    low, high = _interval(ordered)
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
    )


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
