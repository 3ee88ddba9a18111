"""End-to-end latency of variants, compared in one run, and the choice among them.

Variants run in processes of their own, in short slices that take turns in shuffled order: what disturbs the machine for
a while disturbs all of them, and a comparison by rounds cancels it out.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domain import errors
from domain.artifacts import ONNX_RUNTIME, Report, Timing, Variant, Verification
from domain.ports import Canceled, Engine

ROUNDS = 20
SAMPLES_PER_ROUND = 3
SAMPLE_SECONDS = 0.02
"""A sample lasts at least this long: shorter ones measure the clock and the call."""
PAUSE_SECONDS = 0.02
_MOST_RUNS = 10_000
_CLEAR_GAIN = 0.005
"""Tuned must be faster by half a percent: below, the next benchmark may well turn it around."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One variant and how to have it timed: a ``time`` request without its counts."""

    variant: Variant
    engine: Engine
    params: dict[str, Any]


def reference_contender(engine: Engine, model: Path, inputs: Path, *, threads: int) -> Contender:
    params = {"path": str(model), "inputs": str(inputs), "threads": threads}
    return Contender(variant=Variant.REFERENCE, engine=engine, params=params)


def compiled_contender(
    variant: Variant, engine: Engine, bundle: Path, inputs: Path, *, place: Mapping[str, Any]
) -> Contender:
    """``place`` has ``threads`` and, where it is not this machine's CPU, ``target`` and ``runner``."""
    params = {"bundle": str(bundle), "inputs": str(inputs), **place}
    return Contender(variant=variant, engine=engine, params=params)


def interleave(
    contenders: Sequence[Contender],
    *,
    rounds: int = ROUNDS,
    samples: int = SAMPLES_PER_ROUND,
    seed: int = 0,
    timeout: float = 600,
    seconds: float | None = None,
    pause: Callable[[float], None] = time.sleep,
    canceled: Callable[[], bool] | None = None,
) -> dict[Variant, Timing]:
    """Time every contender ``samples`` times in each of ``rounds``; samples of one round stand at the same places.

    The number of runs in a sample is fixed for each contender beforehand, by runs that also warm it up. ``seconds``
    ends the benchmark early, after at least three rounds. Raises EngineError, Canceled.
    """
    numbers = {contender.variant: _number(contender, timeout, canceled) for contender in contenders}
    taken: dict[Variant, list[float]] = {contender.variant: [] for contender in contenders}
    order = list(contenders)
    shuffler = random.Random(seed)  # noqa: S311 - an order, not a secret
    started = time.monotonic()
    for position in range(rounds):
        if canceled and canceled():
            raise Canceled
        if seconds is not None and position >= 3 and time.monotonic() - started > seconds:
            break
        shuffler.shuffle(order)
        for contender in order:
            taken[contender.variant] += _slice(contender, numbers[contender.variant], samples, timeout, canceled)
            pause(PAUSE_SECONDS)
    return {variant: timing(values) for variant, values in taken.items()}


def timing(samples: Sequence[float]) -> Timing:
    """Statistics of seconds per run; percentiles are interpolated between the nearest samples."""
    ordered = sorted(samples)
    return Timing(
        samples=tuple(samples),
        mean=statistics.fmean(ordered),
        median=statistics.median(ordered),
        p90=percentile(ordered, 0.9),
        p99=percentile(ordered, 0.99),
        min=ordered[0],
        max=ordered[-1],
        std=statistics.pstdev(ordered),
    )


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """As ``numpy.percentile``'s default; ``ordered`` ascends."""
    place = fraction * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def judge(
    timings: Mapping[Variant, Timing],
    verifications: Mapping[Variant, Verification],
    *,
    samples_per_round: int = SAMPLES_PER_ROUND,
    reference: str = ONNX_RUNTIME,
) -> Report:
    """Choose the fastest correct compiled variant; tuned must win clearly, or untuned is published.

    Raises VerificationFailed, with every variant's errors in its details, when none is correct.
    """
    correct = {
        variant
        for variant in (Variant.UNTUNED, Variant.TUNED)
        if variant in timings and variant in verifications and verifications[variant].passed
    }
    if not correct:
        raise nothing_right(verifications)
    tuned_wins = Variant.TUNED in correct and (
        Variant.UNTUNED not in correct
        or wins(timings[Variant.TUNED], timings[Variant.UNTUNED], samples=samples_per_round)
    )
    published = Variant.TUNED if tuned_wins else Variant.UNTUNED
    medians = {variant: measured.median for variant, measured in timings.items()}
    over_untuned = medians[Variant.UNTUNED] / medians[published] if Variant.UNTUNED in medians else 1.0
    over_reference = medians[Variant.REFERENCE] / medians[published] if Variant.REFERENCE in medians else None
    return Report(
        timings=dict(timings),
        verifications=dict(verifications),
        published=published,
        speedup_over_untuned=over_untuned,
        speedup_over_reference=over_reference,
        summary=_summary(medians, correct, published, reference),
        compared_with=reference,
    )


def nothing_right(verifications: Mapping[Variant, Verification]) -> errors.VerificationFailed:
    """The error of a job none of whose builds is correct, with every one's errors in its details."""
    return errors.VerificationFailed(
        "no compiled variant computes what the model computes", details=_wrong(verifications)
    )


def unproven(published: Variant, *, records: int, target: str) -> Report:
    """Of a build that was made but never run: it claims nothing."""
    basis = f"with {records} records" if published is Variant.TUNED else "without any record: untuned"
    return Report(
        timings={},
        verifications={},
        published=published,
        speedup_over_untuned=1.0,
        speedup_over_reference=None,
        summary=f"Built for {target} {basis}; nothing was run there, so neither results nor speed are proven.",
    )


def wins(challenger: Timing, champion: Timing, *, samples: int = SAMPLES_PER_ROUND) -> bool:
    """Whether the challenger is clearly faster: in the median over all, and in most rounds, beyond chance.

    A sign test over rounds (each round's best sample of either): 1 % is the chance of so many won rounds without a
    difference.
    """
    if challenger.median > champion.median * (1 - _CLEAR_GAIN):
        return False
    pairs = list(zip(_by_round(challenger.samples, samples), _by_round(champion.samples, samples), strict=False))
    won = sum(ours < theirs for ours, theirs in pairs)
    return _chance(won, len(pairs)) <= 0.01 if len(pairs) >= 7 else won == len(pairs)


def _by_round(samples: Sequence[float], size: int) -> list[float]:
    return [min(samples[start : start + size]) for start in range(0, len(samples), size)]


def _chance(won: int, rounds: int) -> float:
    """Of winning at least ``won`` of ``rounds`` by coin tosses."""
    ways: int = sum(math.comb(rounds, count) for count in range(won, rounds + 1))
    return ways / float(2**rounds)


def _number(contender: Contender, timeout: float, canceled: Callable[[], bool] | None) -> int:
    """Runs per sample; measured twice, as the first runs of a process are slower."""
    number = 1
    for _ in range(2):
        quickest = min(_slice(contender, number, 3, timeout, canceled))
        number = min(_MOST_RUNS, max(1, math.ceil(SAMPLE_SECONDS / max(quickest, 1e-9))))
    return number


def _slice(
    contender: Contender, number: int, samples: int, timeout: float, canceled: Callable[[], bool] | None
) -> list[float]:
    # The first sample finds caches that another variant has filled, and cores that have slept.
    params = {**contender.params, "number": number, "repeat": samples + 1}
    answer = contender.engine.request("time", params, timeout=timeout, canceled=canceled)
    return [float(sample) for sample in answer["samples"]][1:]


def _wrong(verifications: Mapping[Variant, Verification]) -> dict[str, Any]:
    return {
        "verifications": {
            str(variant): [
                {"output": error.output, "max_abs": error.max_abs, "max_rel": error.max_rel, "passed": error.passed}
                for error in verification.outputs
            ]
            for variant, verification in verifications.items()
        }
    }


def _summary(medians: Mapping[Variant, float], correct: set[Variant], published: Variant, reference: str) -> str:
    parts = [_gain(medians, correct, published)]
    if Variant.REFERENCE in medians:
        parts.append(_against_reference(medians[Variant.REFERENCE] / medians[published], str(published), reference))
    return "; ".join(parts) + "."


def _gain(medians: Mapping[Variant, float], correct: set[Variant], published: Variant) -> str:
    shown = _milliseconds(medians[published])
    if published is Variant.TUNED:
        if Variant.UNTUNED not in medians:
            return f"Tuned runs in {shown}"
        if Variant.UNTUNED not in correct:
            return f"Tuned runs in {shown}; untuned gives wrong results and was left out"
        ratio = medians[Variant.UNTUNED] / medians[published]
        return f"Tuning made it {ratio:.2f}× as fast: {shown} against {_milliseconds(medians[Variant.UNTUNED])} untuned"
    if Variant.TUNED not in medians:
        return f"Nothing was tuned: untuned runs in {shown}"
    tuned = _milliseconds(medians[Variant.TUNED])
    if Variant.TUNED not in correct:
        return f"Tuning gained nothing: the tuned variant gives wrong results, so untuned is published ({shown})"
    return f"Tuning gained nothing that is sure: {tuned} tuned, {shown} untuned, which is published"


def _against_reference(ratio: float, name: str, reference: str) -> str:
    if 0.98 <= ratio <= 1.02:
        return f"{name} is level with {reference}"
    if ratio > 1:
        return f"{name} is {ratio:.2f}× as fast as {reference}"
    return f"{reference} is still {1 / ratio:.2f}× as fast as {name}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds * 1000:.0f} ms"
