"""Stage ``benchmark``: time reference, untuned and tuned builds in turns, and choose what to publish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from domain import errors
from domain.artifacts import Conditions, Contender, Report, Runtime, Timing, Variant
from domain.jobs import RunnerKind, Stage
from domain.stage_results import BenchmarkResult
from tuner.results import benchmark, conditions, timing
from tuner.results.conditions import Watch
from tuner.results.timing import Timed
from tuner.search import precisions
from worker import total_limit
from worker.engines import ONNX
from worker.pipeline import builds, profiling, recovery, references, verifying
from worker.pipeline.context import JobContext


def run(context: JobContext) -> BenchmarkResult:
    report = _measured(context) if context.measures else _unproven(context)
    engines = {
        variant: context.toolchains[builds.engine_name(context, variant)] for variant in builds.compiled(context)
    }
    complete = replace(
        report,
        precision=_precision(context, report),
        engines={variant: toolchain.identity for variant, toolchain in engines.items()},
        choice=_choice(context),
        failed_tasks=context.results.tune.failed_tasks,
        portfolio=_settled(context, report),
        runtime_version="" if report.runtime is Runtime.TVM else references.version(context),
    )
    profile = profiling.measure(context, complete)
    if isinstance(profile, str):
        return BenchmarkResult(report=complete, unprofiled=profile)
    return BenchmarkResult(report=complete, profile=profile)


def _measured(context: JobContext) -> Report:
    verifications = context.results.verify.verifications
    # A build that did not run cannot be timed.
    variants = [variant for variant in builds.compiled(context) if verifications[variant].outputs]
    if context.reference_shares_device:
        variants.insert(0, Variant.REFERENCE)
    timings, seen = _without_crashing(context, variants)
    tuned = builds.chosen(context)
    return benchmark.judge(
        timings,
        verifications,
        reference=references.name(context),
        conditions=seen,
        has_records=tuned is not None and tuned.records > 0,
        runtimes=references.runtimes(context),
    )


def _without_crashing(
    context: JobContext, variants: Sequence[Variant]
) -> tuple[dict[Variant, Timing], Conditions | None]:
    """If the tuned build crashes while it is timed, it is left out and the untuned build is published."""
    try:
        with context.exclusive_device():
            return _time(context, variants)
    except errors.EngineError as error:
        recovery.tolerate(context, error)
        if Variant.TUNED not in variants or builds.process_of(context, Variant.TUNED).is_alive():
            raise
        context.note(f"the tuned build crashed in the benchmark and was left out: {error.message[:500]}")
    with context.exclusive_device():
        return _time(context, [variant for variant in variants if variant is not Variant.TUNED])


def _time(context: JobContext, variants: Sequence[Variant]) -> tuple[dict[Variant, Timing], Conditions | None]:
    """Repeat while the machine is noisy, for as long as the budget and the job's limit allow.

    The conditions of remote devices are unknown.
    """
    allowed = total_limit.seconds_to_repeat(context.request.budget, context.limit)

    def started() -> list[Timed[Variant]]:
        return [_timed(context, variant) for variant in variants]

    def restarted() -> list[Timed[Variant]]:
        for variant in variants:
            _close(context, variant)
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


def _timed(context: JobContext, variant: Variant) -> Timed[Variant]:
    inputs = context.seeded_inputs[0]
    if variant is Variant.REFERENCE:
        return references.timed(context, inputs)
    return builds.process_of(context, variant).timed(variant, inputs)


def _close(context: JobContext, variant: Variant) -> None:
    if variant is Variant.REFERENCE:
        references.close(context)
    else:
        builds.process_of(context, variant).close()


def _precision(context: JobContext, report: Report) -> str:
    """Precision of the published build."""
    proven = report.verifications.get(report.published)
    return proven.precision if proven else str(precisions.first(context.request))


def _unproven(context: JobContext) -> Report:
    tuned = builds.chosen(context)
    records = tuned.records if tuned else 0
    published = Variant.TUNED if Variant.TUNED in builds.compiled(context) else Variant.UNTUNED
    return benchmark.unproven(published, records=records, target=context.target.text)


def _choice(context: JobContext) -> tuple[str, ...]:
    return (*context.unavailable, *context.results.choice(Stage.IMPORT, Stage.BASELINE, Stage.PLAN, Stage.TUNE))


def _settled(context: JobContext, report: Report) -> tuple[Contender, ...]:
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
        if variant is published:
            verdict = "published"
        elif variant and contender.verified:
            verdict = _behind(medians, variant, published)
        seconds = medians.get(variant) if variant else None
        found.append(replace(contender, verdict=verdict, seconds=seconds))
    # Sorting is stable: contenders without seconds keep their order.
    return tuple(verifying.ordered([*found, *_other_runtimes(context, report)]))


def _other_runtimes(context: JobContext, report: Report) -> Iterator[Contender]:
    """ONNX Runtime on the model itself, if it competed: as the reference, it is right by definition."""
    timed = report.timings.get(Variant.REFERENCE)
    if timed is None or Runtime.ONNXRUNTIME not in references.runtimes(context):
        return
    ratio = timed.median / report.timings[report.published].median
    verdict = f"{ratio:.2f}× the time of the published build"
    if report.runtime is Runtime.ONNXRUNTIME:
        verdict = f"runs the bundle: {verdict}"
    elif ratio < 1:
        verdict = "not significantly faster than the published build"
    yield Contender(
        name=str(Runtime.ONNXRUNTIME), tuner=None, engine=ONNX, seconds=timed.median, verified=True, verdict=verdict
    )


def _behind(medians: Mapping[Variant, float], variant: Variant, published: Variant) -> str:
    if variant not in medians or published not in medians:
        return "not timed"
    if variant is Variant.TUNED and medians[variant] < medians[published] * 1.02:
        return "not significantly faster than untuned"
    return f"{medians[variant] / medians[published]:.2f}× the time of the fastest"
