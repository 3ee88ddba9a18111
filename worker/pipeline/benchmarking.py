"""Stage ``benchmark``: reference, untuned and tuned in turns, and the choice of what to publish."""

from __future__ import annotations

from dataclasses import replace

from domain.artifacts import FailedTask, Report, Variant
from domain.jobs import Stage
from storage import codec
from tuner import benchmark, timing
from tuner.timing import Timed
from worker.pipeline import hints, measuring, referring, variants, verifying
from worker.pipeline.work import INPUTS, Outcome, Work


def run(work: Work) -> Outcome:
    report = _measured(work) if work.measures else _unproven(work)
    engines = {variant: work.toolchains[variants.engine_name(work, variant)] for variant in variants.compiled(work)}
    complete = replace(
        report,
        engines={variant: toolchain.identity for variant, toolchain in engines.items()},
        choice=_choice(work),
        failed_tasks=_failed_tasks(work),
    )
    return {"report": codec.dump(complete)}


def _measured(work: Work) -> Report:
    verifications = verifying.load(work)
    inputs = work.arrays(INPUTS)[0]
    timed: list[Timed[Variant]] = []
    if work.reference_shares_device:
        timed.append(referring.timed(work, inputs))
    for variant in variants.compiled(work):
        # One that did not run at all has nothing to be timed.
        if verifications[variant].outputs:
            compiled, folder = variants.engine(work, variant), variants.folder(work, variant)
            timed.append(timing.compiled(variant, compiled, folder, inputs, place=work.place))
    with measuring.alone(work):
        timings = timing.interleave(timed, seconds=work.settings.benchmark_seconds, canceled=work.canceled)
    return benchmark.judge(timings, verifications, reference=referring.name(work))


def _unproven(work: Work) -> Report:
    records = work.outcomes[Stage.COMPILE]["records"]
    published = Variant.TUNED if Variant.TUNED in variants.compiled(work) else Variant.UNTUNED
    return benchmark.unproven(published, records=records, target=work.target.text)


def _choice(work: Work) -> tuple[str, ...]:
    said = [*work.unavailable]
    for stage in (Stage.IMPORT, Stage.BASELINE, Stage.PLAN):
        said += work.outcomes[stage].get("choice", [])
    return tuple(said)


def _failed_tasks(work: Work) -> tuple[FailedTask, ...]:
    found = work.outcomes[Stage.TUNE].get("failed_tasks", [])
    return tuple(FailedTask(**task, hint=hints.of(task["failures"])) for task in found)
