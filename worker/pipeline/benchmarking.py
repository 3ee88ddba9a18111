"""Stage ``benchmark``: time reference, untuned and tuned builds in turns, and choose what to publish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from domain import errors
from domain.artifacts import Conditions, Contender, Report, Runtime, Timing, Variant
from domain.jobs import RunnerKind
from domain.stage_results import BenchmarkResult
from tuner.results import benchmark, conditions, timing
from tuner.results.conditions import Watch
from tuner.results.timing import Timed
from tuner.search import precisions
from worker.pipeline import builds, formats, profiling, recovery, references, runtimes, verifying
from worker.pipeline.context import JobContext
from worker.pipeline.runtimes import Candidates

_NEEDED = (Variant.REFERENCE, Variant.UNTUNED)
"""Without these, there is no benchmark."""


def run(context: JobContext) -> BenchmarkResult:
    candidates = runtimes.find(context)
    report = _measured(context, candidates) if context.measures else _unmeasured(context)
    engines = {
        variant: context.toolchains[builds.engine_name(context, variant)] for variant in builds.compiled(context)
    }
    complete = replace(
        report,
        precision=_precision(context, report),
        engines={variant: toolchain.identity for variant, toolchain in engines.items()},
        choice=_choice(context),
        failed_tasks=context.results.tune.failed_tasks,
        portfolio=_settled(context, report, candidates),
        data=rows.use if (rows := context.results.baseline.rows) else None,
    )
    files: tuple[str, ...] = ()
    if report.runtime is not Runtime.TVM:
        chosen = candidates.competing[report.fastest]
        complete = replace(
            complete,
            runtime_version=chosen.version,
            runtime_model=chosen.model,
            runtime_options=chosen.options,
            runtime_precision=str(chosen.precision),
        )
        files = (runtimes.model(context, chosen.model).name,)
    profile = profiling.measure(context, complete)
    if isinstance(profile, str):
        return BenchmarkResult(files=files, report=complete, unprofiled=profile)
    return BenchmarkResult(files=files, report=complete, profile=profile)


def _measured(context: JobContext, candidates: Candidates) -> Report:
    verifications = context.results.verify.verifications
    # A build that did not run cannot be timed.
    variants = [variant for variant in builds.compiled(context) if verifications[variant].outputs]
    if context.reference_shares_device:
        variants.insert(0, Variant.REFERENCE)
    variants += [variant for variant in candidates.competing if variant not in variants]
    timings, seen = _without_crashing(context, variants, candidates)
    tuned = builds.chosen(context)
    judged = partial(
        benchmark.judge,
        timings,
        reference=references.name(context),
        conditions=seen,
        has_records=tuned is not None and tuned.records > 0,
        runtimes={variant: candidate.runtime for variant, candidate in candidates.competing.items()},
    )
    return formats.judge(context, judged, {**verifications, **candidates.verifications})


def _without_crashing(
    context: JobContext, variants: Sequence[Variant], candidates: Candidates
) -> tuple[dict[Variant, Timing], Conditions | None]:
    """Leave out what crashes while it is timed, except the reference and the untuned build, which is then published."""
    while True:
        try:
            with context.exclusive_device():
                return _time(context, variants, candidates)
        except errors.EngineError as error:
            recovery.tolerate(context, error)
            crashed = [variant for variant in variants if _has_crashed(context, variant, candidates)]
            if not crashed:
                raise
            for variant in crashed:
                name = "the tuned build" if variant is Variant.TUNED else candidates.competing[variant].name
                context.note(f"{name} crashed in the benchmark and was left out: {error.message[:500]}")
            variants = [variant for variant in variants if variant not in crashed]


def _has_crashed(context: JobContext, variant: Variant, candidates: Candidates) -> bool:
    if variant is Variant.TUNED:
        return not builds.process_of(context, variant).is_alive()
    return variant not in _NEEDED and not runtimes.is_alive(context, candidates.competing[variant])


def _time(
    context: JobContext, variants: Sequence[Variant], candidates: Candidates
) -> tuple[dict[Variant, Timing], Conditions | None]:
    """Repeat while the machine is noisy, for as long as the budget and the job's limit allow.

    The conditions of remote devices are unknown.
    """
    allowed = context.limit.left_to_repeat

    def started() -> list[Timed[Variant]]:
        return [_timed(context, variant, candidates) for variant in variants]

    def restarted() -> list[Timed[Variant]]:
        for variant in variants:
            _close(context, variant, candidates)
        return started()

    def measure(watch: Watch | None) -> dict[Variant, Timing]:
        return timing.interleave(
            started(),
            seconds=min(context.settings.benchmark_seconds, allowed),
            between=watch.look if watch else None,
            restart=restarted if watch else None,
            canceled=context.canceled,
        )

    if context.request.runner is not RunnerKind.LOCAL:
        return measure(None), None
    return conditions.until_quiet(measure, context.device, seconds=allowed)


def _timed(context: JobContext, variant: Variant, candidates: Candidates) -> Timed[Variant]:
    inputs = context.timed_inputs
    if variant is Variant.REFERENCE:
        return references.timed(context, inputs)
    if variant in candidates.competing:
        return runtimes.timed(context, candidates.competing[variant], inputs)
    return builds.process_of(context, variant).timed(variant, inputs)


def _close(context: JobContext, variant: Variant, candidates: Candidates) -> None:
    if variant is Variant.REFERENCE:
        references.close(context)
    elif variant in candidates.competing:
        runtimes.close(context, candidates.competing[variant])
    else:
        builds.process_of(context, variant).close()


def _precision(context: JobContext, report: Report) -> str:
    """Precision of the published build."""
    proven = report.verifications.get(report.published)
    return proven.precision if proven else str(precisions.first(context.request))


def _unmeasured(context: JobContext) -> Report:
    tuned, emulation = builds.chosen(context), context.emulation
    report = benchmark.unmeasured(
        context.results.verify.verifications,
        records=None if tuned is None else tuned.records,
        target=context.target.text,
        reference=references.name(context),
        emulator=emulation.emulator,
        lacks=emulation.lacks,
    )
    return replace(report, format_verification=formats.verify(context, report))


def _choice(context: JobContext) -> tuple[str, ...]:
    return (*context.unavailable, *context.results.choice)


def _settled(context: JobContext, report: Report, candidates: Candidates) -> tuple[Contender, ...]:
    """The portfolio after the benchmark, with verdicts on what was in it, and with the benchmark's seconds alone.

    The seconds from stage ``verify`` are of another run, and two runs differ by more than builds do.
    """
    published = report.published
    medians = {variant: measured.median for variant, measured in report.timings.items()}
    tuned = builds.chosen(context)
    benched = {verifying.untuned_name(context): Variant.UNTUNED} | ({tuned.name: Variant.TUNED} if tuned else {})
    found = []
    for contender in context.results.verify.portfolio:
        variant = benched.get(contender.name)
        verdict = contender.verdict
        right, checked = contender.verified, report.verifications.get(variant) if variant else None
        if variant is published:
            verdict = "published"
        elif right and checked and not checked.passed:
            verdict, right = "wrong results as TVM loads it", False
        elif variant and right:
            verdict = _behind(medians, variant, published)
        seconds = medians.get(variant) if variant else None
        found.append(replace(contender, verdict=verdict, seconds=seconds, verified=right))
    # Sorting is stable: contenders without seconds keep their order.
    return tuple(verifying.ordered([*found, *_other_runtimes(report, candidates), *candidates.others]))


def _other_runtimes(report: Report, candidates: Candidates) -> Iterator[Contender]:
    """What competed without being compiled; the reference is right by definition."""
    for variant, candidate in candidates.competing.items():
        if variant not in report.timings:
            yield runtimes.contender(candidate, "not timed", verified=True)
            continue
        seconds = report.timings[variant].median
        ratio = seconds / report.timings[report.published].median
        verdict = f"{ratio:.2f}× the time of the published build"
        if variant is report.fastest:
            verdict = f"runs the bundle: {verdict}"
        elif ratio < 1 and report.runtime is Runtime.TVM:
            verdict = "not significantly faster than the published build"
        yield runtimes.contender(candidate, verdict, verified=True, seconds=seconds)


def _behind(medians: Mapping[Variant, float], variant: Variant, published: Variant) -> str:
    if variant not in medians or published not in medians:
        return "not timed"
    if variant is Variant.TUNED and medians[variant] < medians[published] * 1.02:
        return "not significantly faster than untuned"
    return f"{medians[variant] / medians[published]:.2f}× the time of the fastest"
