"""Reports on bundles with several entry points, from the reports on each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from domain.artifacts import OutputError, Report, SizeReport, Timing, Variant, Verification, narrowest
from domain.models import Dimension
from domain.sizes import Size


def report(sizes: Sequence[SizeReport], *, choice: Sequence[str] = ()) -> Report:
    """Return the report on the bundle.

    Its timings are those of the expected runs, each number the mean of the sizes' by their shares, without samples. For
    each output, its verification has the error of the size where it comes closest to its limit.
    """
    first = sizes[0].report
    tuned = any(each.report.published is Variant.TUNED for each in sizes)
    published = Variant.TUNED if tuned else Variant.UNTUNED
    found = {variant: _mean(sizes, variant) for variant in (Variant.REFERENCE, Variant.UNTUNED)}
    found[published] = _mean(sizes, None)
    timings = {variant: timing for variant, timing in found.items() if timing is not None}
    medians = {variant: timing.median for variant, timing in timings.items()}
    over_untuned = (
        medians[Variant.UNTUNED] / medians[published] if {Variant.UNTUNED, published} <= medians.keys() else 1.0
    )
    over_reference = medians[Variant.REFERENCE] / medians[published] if Variant.REFERENCE in medians else None
    return Report(
        timings=timings,
        verifications={published: _verification([each.report for each in sizes], published)},
        published=published,
        speedup_over_untuned=over_untuned,
        speedup_over_reference=over_reference,
        summary=_summary(sizes, over_untuned, over_reference),
        engines={published: first.engines[first.published]} if first.published in first.engines else {},
        choice=tuple(choice),
        compared_with=first.compared_with,
        precision=narrowest(each.report.precision for each in sizes),
        conditions=next((each.report.conditions for each in sizes if _is_noisy(each)), first.conditions),
        data=first.data,
        sizes=tuple(sizes),
    )


def varying(shapes: Sequence[Sequence[Dimension]], sizes: Sequence[Size]) -> tuple[Dimension, ...]:
    """Return one shape for those of all sizes: where they differ, the name of the dimension, or None if it is none."""

    def named(axis: int) -> Dimension:
        found = [shape[axis] for shape in shapes]
        if len(set(found)) == 1:
            return found[0]
        return next((name for name in sizes[0].values if found == [size.values[name] for size in sizes]), None)

    return tuple(named(axis) for axis in range(len(shapes[0])))


def _mean(sizes: Sequence[SizeReport], variant: Variant | None) -> Timing | None:
    """Of a variant, by default of what is published of each size; None without a time of every size."""
    timings = [each.report.timings.get(variant or each.report.published) for each in sizes]
    known = [timing for timing in timings if timing is not None]
    if len(known) < len(sizes):
        return None

    def mean(value: Callable[[Timing], float]) -> float:
        return math.fsum(each.size.share * value(timing) for each, timing in zip(sizes, known, strict=True))

    return Timing(
        samples=(),
        mean=mean(lambda timing: timing.mean),
        median=mean(lambda timing: timing.median),
        p90=mean(lambda timing: timing.p90),
        p99=mean(lambda timing: timing.p99),
        min=mean(lambda timing: timing.min),
        max=mean(lambda timing: timing.max),
        std=mean(lambda timing: timing.std),
    )


def _verification(reports: Sequence[Report], published: Variant) -> Verification:
    found = [report.verifications[report.published] for report in reports]
    outputs: dict[str, OutputError] = {}
    for error in (error for each in found for error in each.outputs):
        known = outputs.get(error.output)
        if known is None or _closeness(error) > _closeness(known):
            outputs[error.output] = error
    return replace(found[0], variant=published, outputs=tuple(outputs.values()))


def _closeness(error: OutputError) -> tuple[bool, bool, float]:
    """How close an error is to its limit; one that is beyond it, and one that was not compared, come last."""
    return not error.passed, error.not_compared, error.max_rel / error.rtol if error.rtol else error.max_abs


def _is_noisy(each: SizeReport) -> bool:
    return each.report.conditions is not None and each.report.conditions.noisy


def _summary(sizes: Sequence[SizeReport], over_untuned: float, over_reference: float | None) -> str:
    noisy = " The machine was busy: times and ratios are approximate." if any(map(_is_noisy, sizes)) else ""
    compared = f" and {over_reference:.2f}× as fast as {sizes[0].report.compared_with}" if over_reference else ""
    worst = min((each.report.speedup_over_untuned for each in sizes), default=math.nan)
    return (
        f"One library for {len(sizes)} sizes: over the expected runs {over_untuned:.2f}× as fast as untuned{compared}; "
        f"no size is slower than untuned ({worst:.2f}× at least).{noisy}"
    )
