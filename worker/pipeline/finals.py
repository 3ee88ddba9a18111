"""The builds that are right, timed side by side in one short run: the fastest is the job's tuned variant.

It is shorter than the benchmark that decides between untuned and tuned: a wrong choice among builds that are nearly
level costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from domain import errors
from domain.artifacts import Contender, Variant, Verification
from domain.jobs import Precision, Stage
from storage import codec
from tuner import precisions, timing
from tuner.timing import Timed
from worker.pipeline import builds, measuring, referring, variants
from worker.pipeline.builds import Build
from worker.pipeline.work import INPUTS, Outcome, Work

_ROUNDS = 8
_SAMPLES = 2
_TIME_SHARE = 0.25
"""Of the benchmark's seconds."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    build: Build
    verification: Verification


@dataclass(frozen=True, kw_only=True)
class Decided:
    chosen: Checked | None
    portfolio: list[Contender]
    """The fastest first; behind them those without a time."""


def run(work: Work, checked: Sequence[Checked]) -> Decided:
    """Raises EngineError, LeaseLost, Canceled."""
    right = {each.build.name: each for each in checked if each.verification.passed}
    medians, crashed = _race(work, right) if len(right) > 1 else ({}, {})
    running = [each for name, each in right.items() if name not in crashed]
    chosen = min(running, key=lambda each: medians.get(each.build.name, 0.0), default=None)
    if chosen is None and checked:
        chosen = checked[0]
    _close_others(work, checked, chosen)
    told = [_contender(work, each, chosen, medians, crashed) for each in checked]
    return Decided(chosen=chosen, portfolio=_ordered([_untuned(work, medians), *told, *_left(work)]))


def unmeasured(work: Work, made: Sequence[Build]) -> list[Outcome]:
    """Of a job that runs nothing: what was built, and what was not."""
    told = [_of(build, verdict="built; nothing was run") for build in made]
    return [codec.dump(contender) for contender in (*told, *_left(work))]


def settled(work: Work, published: Variant, medians: Mapping[Variant, float]) -> tuple[Contender, ...]:
    """The portfolio after the benchmark, with verdicts on untuned and tuned, and no seconds but the benchmark's.

    Those of the race are of another run, and two runs differ by more than builds do.
    """
    tuned = variants.tuned(work)
    benched = {_untuned_name(work): Variant.UNTUNED} | ({tuned.name: Variant.TUNED} if tuned else {})
    found = []
    for contender in (codec.load(Contender, data) for data in work.outcomes[Stage.VERIFY]["portfolio"]):
        variant = benched.get(contender.name)
        verdict = contender.verdict
        if variant is published:
            verdict = "published"
        elif variant and contender.verified:
            verdict = _behind(medians, variant, published)
        seconds = medians.get(variant) if variant else None
        found.append(replace(contender, verdict=verdict, seconds=seconds))
    # Sorting keeps the order of the race among those without seconds.
    return tuple(_ordered(found))


def _race(work: Work, right: Mapping[str, Checked]) -> tuple[dict[str, float], dict[str, str]]:
    """Median seconds per run of each, of untuned and of the reference; and what crashed, with the reason."""
    crashed: dict[str, str] = {}
    while len(right) - len(crashed) > 1:
        names = [name for name in right if name not in crashed]
        timed = _timed(work, [right[name].build for name in names])
        try:
            with measuring.alone(work):
                seconds = work.settings.benchmark_seconds * _TIME_SHARE
                times = timing.interleave(
                    timed, rounds=_ROUNDS, samples=_SAMPLES, seconds=seconds, canceled=work.canceled
                )
            return {name: measured.median for name, measured in times.items()}, crashed
        except errors.EngineError as error:
            work.keeper.check()
            dead = [each.name for each in timed if each.name in names and not each.engine.alive]
            if not dead:
                raise
            crashed |= dict.fromkeys(dead, f"crashed while it was timed: {error.message[:200]}")
    return {}, crashed


def _timed(work: Work, made: Sequence[Build]) -> list[Timed[str]]:
    inputs = work.arrays(INPUTS)[0]
    untuned = variants.engine(work, Variant.UNTUNED), variants.folder(work, Variant.UNTUNED)
    timed: list[Timed[str]] = [timing.compiled(_untuned_name(work), *untuned, inputs, place=work.place)]
    if work.reference_shares_device:
        reference = referring.timed(work, inputs)
        timed.append(Timed(name=str(reference.name), engine=reference.engine, params=reference.params))
    for build in made:
        engine = work.engines.get(build.engine, role=build.folder)
        timed.append(timing.compiled(build.name, engine, build.path(work), inputs, place=work.place))
    return timed


def _close_others(work: Work, checked: Sequence[Checked], chosen: Checked | None) -> None:
    for each in checked:
        if each is not chosen:
            work.engines.close(each.build.engine, role=each.build.folder)


def _contender(
    work: Work,
    each: Checked,
    chosen: Checked | None,
    medians: Mapping[str, float],
    crashed: Mapping[str, str],
) -> Contender:
    build, found = each.build, each.verification
    seconds = medians.get(build.name)
    if not found.passed:
        verdict = _objection(work, build, found)
    elif build.name in crashed:
        verdict = crashed[build.name]
    elif each is chosen or chosen is None or seconds is None:
        verdict = "the fastest tuned build"
    else:
        verdict = f"when they raced: {seconds / medians[chosen.build.name]:.2f}× the time of {chosen.build.name}"
    return replace(_of(build, verdict=verdict), seconds=seconds, verified=found.passed)


def _objection(work: Work, build: Build, found: Verification) -> str:
    if not found.outputs:
        return "does not run"
    precision = Precision(build.precision)
    if precision is Precision.F32:
        return "wrong results"
    return precisions.passes(found, precisions.gate_of(work.request, precision), precision)[1]


def _untuned(work: Work, medians: Mapping[str, float]) -> Contender:
    name = _untuned_name(work)
    engine = variants.engine_name(work, Variant.UNTUNED)
    stored = work.outcomes[Stage.BASELINE]["verifications"].get(engine)
    return Contender(
        name=name,
        tuner=None,
        engine=engine,
        precision=str(precisions.first(work.request)),
        seconds=medians.get(name),
        verified=bool(stored) and codec.load(Verification, stored).passed,
        verdict="what tuned builds are compared with",
    )


def _left(work: Work) -> list[Contender]:
    """What was not built."""
    return [_of(builds.load(data["build"]), verdict=data["verdict"]) for data in work.outcomes[Stage.COMPILE]["left"]]


def _of(build: Build, *, verdict: str) -> Contender:
    return Contender(
        name=build.name,
        tuner=build.tuner,
        engine=build.engine,
        precision=build.precision,
        rewritten=build.rewritten,
        records=build.records,
        trials=build.trials,
        seconds_tuned=round(build.seconds_tuned, 3),
        verdict=verdict,
    )


def _untuned_name(work: Work) -> str:
    return f"untuned {work.outcomes[Stage.BASELINE]['engine']}"


def _behind(medians: Mapping[Variant, float], variant: Variant, published: Variant) -> str:
    if variant not in medians or published not in medians:
        return "not timed"
    if variant is Variant.TUNED and medians[variant] < medians[published] * 1.02:
        return "not surely faster than untuned"
    return f"{medians[variant] / medians[published]:.2f}× the time of the fastest"


def _ordered(contenders: Sequence[Contender]) -> list[Contender]:
    return sorted(contenders, key=lambda each: (each.seconds is None, not each.verified, each.seconds or 0.0))
