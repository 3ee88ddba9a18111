"""Stage ``benchmark``: reference, untuned and tuned in turns, and the choice of what to publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from domain import errors
from domain.artifacts import Conditions, Contender, Report, Timing, Variant
from domain.jobs import RunnerKind, Stage
from domain.stage_results import BenchmarkResult
from tuner.results import benchmark, conditions, timing
from tuner.results.conditions import Watch
from tuner.results.timing import Timed
from tuner.search import precisions
from worker.pipeline import builds, measuring, recovery, references, verifying
from worker.pipeline.context import Work


def run(work: Work) -> BenchmarkResult:
    report = _measured(work) if work.measures else _unproven(work)
    engines = {variant: work.toolchains[builds.engine_name(work, variant)] for variant in builds.compiled(work)}
    medians = {variant: measured.median for variant, measured in report.timings.items()}
    complete = replace(
        report,
        precision=_precision(work, report),
        engines={variant: toolchain.identity for variant, toolchain in engines.items()},
        choice=_choice(work),
        failed_tasks=work.results.tune.failed_tasks,
        portfolio=_settled(work, report.published, medians),
    )
    return BenchmarkResult(report=complete)


def _measured(work: Work) -> Report:
    verifications = work.results.verify.verifications
    inputs = work.seeded_inputs[0]
    timed: list[Timed[Variant]] = []
    if work.reference_shares_device:
        timed.append(references.timed(work, inputs))
    for variant in builds.compiled(work):
        # One that did not run at all has nothing to be timed.
        if verifications[variant].outputs:
            compiled, folder = builds.engine(work, variant), builds.folder(work, variant)
            timed.append(timing.compiled(variant, compiled, folder, inputs, place=work.place))
    timings, seen = _without_crashing(work, timed)
    tuned = builds.chosen(work)
    return benchmark.judge(
        timings,
        verifications,
        reference=references.name(work),
        conditions=seen,
        has_records=tuned is not None and tuned.records > 0,
    )


def _without_crashing(work: Work, timed: Sequence[Timed[Variant]]) -> tuple[dict[Variant, Timing], Conditions | None]:
    """A tuned build that crashes while it is timed costs itself, and untuned is published."""
    try:
        with measuring.alone(work):
            return _time(work, timed)
    except errors.EngineError as error:
        recovery.forgive(work, error)
        left = [each for each in timed if each.name is not Variant.TUNED or each.engine.alive]
        if len(left) == len(timed):
            raise
        work.note(f"the tuned build crashed in the benchmark and was left out: {error.message[:500]}")
    with measuring.alone(work):
        return _time(work, left)


def _time(work: Work, timed: Sequence[Timed[Variant]]) -> tuple[dict[Variant, Timing], Conditions | None]:
    """Again while the machine is not quiet; of a device elsewhere nothing is seen."""

    def measure(watch: Watch | None) -> dict[Variant, Timing]:
        seconds, between = work.settings.benchmark_seconds, watch.look if watch else None
        return timing.interleave(timed, seconds=seconds, between=between, canceled=work.canceled)

    if work.request.runner is not RunnerKind.LOCAL:
        return measure(None), None
    return conditions.until_quiet(measure, work.device)


def _precision(work: Work, report: Report) -> str:
    """What the published build computes with."""
    proven = report.verifications.get(report.published)
    return proven.precision if proven else str(precisions.first(work.request))


def _unproven(work: Work) -> Report:
    tuned = builds.chosen(work)
    records = tuned.records if tuned else 0
    published = Variant.TUNED if Variant.TUNED in builds.compiled(work) else Variant.UNTUNED
    return benchmark.unproven(published, records=records, target=work.target.text)


def _choice(work: Work) -> tuple[str, ...]:
    return (*work.unavailable, *work.results.choice(Stage.IMPORT, Stage.BASELINE, Stage.PLAN, Stage.TUNE))


def _settled(work: Work, published: Variant, medians: Mapping[Variant, float]) -> tuple[Contender, ...]:
    """The portfolio after the benchmark, with verdicts on untuned and tuned, and no seconds but the benchmark's.

    Those of the race are of another run, and two runs differ by more than builds do.
    """
    tuned = builds.chosen(work)
    benched = {verifying.untuned_name(work): Variant.UNTUNED} | ({tuned.name: Variant.TUNED} if tuned else {})
    found = []
    for contender in work.results.verify.portfolio:
        variant = benched.get(contender.name)
        verdict = contender.verdict
        if variant is published:
            verdict = "published"
        elif variant and contender.verified:
            verdict = _behind(medians, variant, published)
        seconds = medians.get(variant) if variant else None
        found.append(replace(contender, verdict=verdict, seconds=seconds))
    # Sorting keeps the order of the race among those without seconds.
    return tuple(verifying.ordered(found))


def _behind(medians: Mapping[Variant, float], variant: Variant, published: Variant) -> str:
    if variant not in medians or published not in medians:
        return "not timed"
    if variant is Variant.TUNED and medians[variant] < medians[published] * 1.02:
        return "not significantly faster than untuned"
    return f"{medians[variant] / medians[published]:.2f}× the time of the fastest"
