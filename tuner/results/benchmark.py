"""Choice of the published variant by end-to-end latency, measured in one benchmark (``tuner.results.timing``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

from domain import errors
from domain.artifacts import ONNX_RUNTIME, Conditions, Report, Runtime, Timing, Variant, Verification, speedup
from tuner.results.timing import SAMPLES_PER_ROUND, speedup_interval

_CLEAR_GAIN = 0.005
"""Tuned must be faster by half a percent, as the next benchmark may reverse smaller differences."""
_LEVEL = 0.98, 1.02
"""Ratios of times within which two variants count as equally fast."""
_NO_RUNTIMES: Mapping[Variant, Runtime] = MappingProxyType({})


def judge(
    timings: Mapping[Variant, Timing],
    verifications: Mapping[Variant, Verification],
    *,
    reference: str = ONNX_RUNTIME,
    conditions: Conditions | None = None,
    has_records: bool = True,
    runtimes: Mapping[Variant, Runtime] = _NO_RUNTIMES,
) -> Report:
    """Choose the fastest correct variant; tuned must be clearly faster, or untuned is published.

    ``has_records``: whether tuned uses records; otherwise, only the rewriting made it faster, and the summary says so.
    ``runtimes`` are the variants that compete without being compiled, the preferred one first: one that is clearly
    faster than the published variant, and correct, becomes the bundle's runtime; the reference is correct. Raises
    VerificationFailed, with the errors of all variants in its details, if none is correct.
    """
    correct = {
        variant
        for variant in (Variant.UNTUNED, Variant.TUNED)
        if variant in timings and variant in verifications and verifications[variant].passed
    }
    if not correct:
        raise nothing_right({str(variant): found for variant, found in verifications.items()})
    tuned_wins = Variant.TUNED in correct and (
        Variant.UNTUNED not in correct or wins(timings[Variant.TUNED], timings[Variant.UNTUNED])
    )
    published = Variant.TUNED if tuned_wins else Variant.UNTUNED
    fastest = published
    for variant in runtimes:
        right = variant is Variant.REFERENCE or (variant in verifications and verifications[variant].passed)
        if right and variant in timings and _is_worth(timings[variant], timings[fastest]):
            fastest = variant
    of = timings[published]
    others = {variant: timings[variant] for variant in (Variant.UNTUNED, Variant.REFERENCE) if variant in timings}
    ratios = {variant: speedup(of, over) for variant, over in others.items()}
    intervals = {
        variant: found
        for variant, over in others.items()
        if variant is not published and (found := speedup_interval(of, over))
    }
    return Report(
        timings=dict(timings),
        verifications=dict(verifications),
        published=published,
        speedup_over_untuned=ratios.get(Variant.UNTUNED, 1.0),
        speedup_over_reference=ratios.get(Variant.REFERENCE),
        speedup_over_untuned_interval=intervals.get(Variant.UNTUNED),
        speedup_over_reference_interval=intervals.get(Variant.REFERENCE),
        runtime=runtimes.get(fastest, Runtime.TVM),
        runtime_variant=fastest if fastest in runtimes else None,
        summary=_summary(timings, verifications, correct, published, reference, has_records, fastest)
        + _unproven_outputs(verifications[published], reference)
        + _noise(conditions, intervals, published, reference),
        compared_with=reference,
        conditions=conditions,
    )


def nothing_right(verifications: Mapping[str, Verification]) -> errors.VerificationFailed:
    """Return the error of a job without a correct build, with the errors of all builds, by name, in its details."""
    found = {name: [asdict(error) for error in each.outputs] for name, each in verifications.items()}
    return errors.VerificationFailed(
        "no compiled variant matches the model's results", details={"verifications": found}
    )


def nothing_compared(found: Verification, reference: str) -> errors.VerificationFailed:
    """Return the error of a job whose model yields no finite number on any input."""
    kinds = ", ".join(f"{name}: {kind}" for name, kind in found.inputs.items())
    outputs = ", ".join(error.output for error in found.outputs)
    return errors.VerificationFailed(
        f"{reference} computes no finite number from {len(found.seeds)} seeded inputs{f' ({kinds})' if kinds else ''}: "
        f"every element of {outputs} is NaN or infinite, so no build can be verified",
        hint="Check the model: docs/explanation/verification.md describes the input values that are used. To build "
        "it without verification and timing, use runner 'none'.",
        details={"outputs": [error.output for error in found.outputs], "inputs": dict(found.inputs)},
    )


def unmeasured(
    verifications: Mapping[Variant, Verification],
    *,
    records: int | None,
    target: str,
    reference: str = ONNX_RUNTIME,
    emulator: str = "",
    lacks: str = "",
) -> Report:
    """Return the report of a job that timed nothing: the tuned build is published, unless it is known to be wrong.

    ``verifications`` are those under ``emulator``; empty if the builds were not run, which ``lacks`` explains.
    ``records`` is the number of records in the tuned build; None without one.
    """
    found = verifications.get(Variant.TUNED)
    is_tuned = records is not None and (not verifications or (found is not None and found.passed))
    published = Variant.TUNED if is_tuned else Variant.UNTUNED
    basis = f"with {records} records" if is_tuned else "untuned, without records"
    if published in verifications:
        outcome = f"verified under {emulator}, not timed.{_unproven_outputs(verifications[published], reference)}"
    else:
        why = f" because {lacks}" if lacks else ""
        outcome = f"it was not run{why}, so neither results nor speed are verified."
    return Report(
        timings={},
        verifications=dict(verifications),
        published=published,
        speedup_over_untuned=1.0,
        speedup_over_reference=None,
        summary=f"Built for {target} {basis}; {outcome}",
        compared_with=reference,
        emulator=emulator if verifications else "",
    )


def wins(challenger: Timing, champion: Timing) -> bool:
    """Return whether the challenger is clearly faster: in the median, and in significantly many rounds.

    A sign test over rounds (best sample of each): the probability of so many won rounds without a difference is at most
    1 %.
    """
    if challenger.median > champion.median * (1 - _CLEAR_GAIN):
        return False
    pairs = list(zip(_by_round(challenger.samples), _by_round(champion.samples), strict=False))
    won = sum(ours < theirs for ours, theirs in pairs)
    return _chance(won, len(pairs)) <= 0.01 if len(pairs) >= 7 else won == len(pairs)


def _is_worth(challenger: Timing, champion: Timing) -> bool:
    """Return whether another runtime is so much faster that it is worth its package and its file in the bundle."""
    return challenger.median < _LEVEL[0] * champion.median and wins(challenger, champion)


def _by_round(samples: Sequence[float]) -> list[float]:
    starts = range(0, len(samples), SAMPLES_PER_ROUND)
    return [min(samples[start : start + SAMPLES_PER_ROUND]) for start in starts]


def _chance(won: int, rounds: int) -> float:
    """Return the probability of at least ``won`` of ``rounds`` by coin tosses."""
    ways: int = sum(math.comb(rounds, count) for count in range(won, rounds + 1))
    return ways / float(2**rounds)


def _summary(
    timings: Mapping[Variant, Timing],
    verifications: Mapping[Variant, Verification],
    correct: set[Variant],
    published: Variant,
    reference: str,
    has_records: bool,
    fastest: Variant,
) -> str:
    """Describe the speedup, then the reference; first, if they are faster, the bundle's runtime and the reference."""
    crashed = Variant.TUNED in verifications and Variant.TUNED not in timings
    parts = [_crash(timings) if crashed else _gain(timings, correct, published, has_records)]
    if Variant.REFERENCE in timings and fastest is not Variant.REFERENCE:
        ratio = speedup(timings[published], timings[Variant.REFERENCE])
        place = 0 if ratio < _LEVEL[0] else 1
        parts.insert(place, _against_reference(ratio, str(published), reference))
    if fastest is not published:
        ratio = speedup(timings[fastest], timings[published])
        found = verifications.get(fastest)
        narrow = f" in {found.precision}" if found and found.precision != "f32" else ""
        other = f"{fastest.title(reference)}{narrow} is {ratio:.2f}× as fast as {published}"
        parts.insert(0, f"{other}, so the bundle runs with it where it is installed")
    first, *others = parts
    return "; ".join([first[0].upper() + first[1:], *(_lowered(part) for part in others)]) + "."


def _unproven_outputs(found: Verification, reference: str) -> str:
    reasons = {False: f"{reference} computes no finite number there", True: f"{reference} returns no element there"}
    parts = []
    for is_empty, reason in reasons.items():
        names = [error.output for error in found.outputs if error.not_compared and error.empty is is_empty]
        if names:
            verb = "Output {} was" if len(names) == 1 else "Outputs {} were"
            parts.append(f" {verb.format(', '.join(names))} not compared: {reason}.")
    return "".join(parts) + (" The artifact is therefore not verified." if parts else "")


def _noise(
    conditions: Conditions | None, intervals: Mapping[Variant, tuple[float, float]], published: Variant, reference: str
) -> str:
    """Say that the machine was busy, and what nevertheless holds: rounds compare what was disturbed alike."""
    if conditions is None or not conditions.noisy:
        return ""
    busy = f" The machine was busy ({'; '.join(conditions.reasons)})"
    if not intervals:
        return f"{busy}: times and ratios are approximate."
    names = {Variant.UNTUNED: "untuned", Variant.REFERENCE: reference}
    bounds = [f"{low:.2f} to {high:.2f}× as fast as {names[variant]}" for variant, (low, high) in intervals.items()]
    return f"{busy}: times are approximate. Timed in turns, {published} is {' and '.join(bounds)} (95 % confidence)."


def _lowered(part: str) -> str:
    return part[0].lower() + part[1:] if part.startswith(("Tun", "Rewriting", "Nothing")) else part


def _crash(timings: Mapping[Variant, Timing]) -> str:
    return f"Tuning gained nothing: the tuned build crashes; untuned runs in {_milliseconds(timings[Variant.UNTUNED])}"


def _gain(timings: Mapping[Variant, Timing], correct: set[Variant], published: Variant, has_records: bool) -> str:
    shown = _milliseconds(timings[published])
    if published is Variant.TUNED:
        if Variant.UNTUNED not in timings:
            return f"Tuned runs in {shown}"
        if Variant.UNTUNED not in correct:
            return f"Tuned runs in {shown}; untuned gives wrong results and was left out"
        means = "Tuning" if has_records else "Rewriting the model alone"
        ratio = speedup(timings[published], timings[Variant.UNTUNED])
        untuned = _milliseconds(timings[Variant.UNTUNED])
        return f"{means} made it {ratio:.2f}× as fast: {shown} against {untuned} untuned"
    if Variant.TUNED not in timings:
        return f"Nothing was tuned: untuned runs in {shown}"
    tuned = _milliseconds(timings[Variant.TUNED])
    if Variant.TUNED not in correct:
        return f"Tuning gained nothing: the tuned variant gives wrong results, so untuned is published ({shown})"
    return f"Tuning gave no significant gain: {tuned} tuned, {shown} untuned, which is published"


def _against_reference(ratio: float, name: str, reference: str) -> str:
    if _LEVEL[0] <= ratio <= _LEVEL[1]:
        return f"{name} is as fast as {reference}"
    if ratio > 1:
        return f"{name} is {ratio:.2f}× as fast as {reference}"
    return f"{reference} is still {1 / ratio:.2f}× as fast as {name}"


def _milliseconds(timing: Timing) -> str:
    seconds = timing.median
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds * 1000:.0f} ms"
