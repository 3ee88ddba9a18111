"""Stage ``verify``: compare every build with the reference, and choose the fastest correct one.

Wrong builds are never published. Correct builds are timed side by side in one run that is shorter than the benchmark,
which decides between untuned and tuned: a wrong choice among builds of nearly equal speed costs next to nothing.

A wrong tuned build is audited: the engine finds the faulty records, these are invalidated in the store, and the build
is made again without them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from domain import errors
from domain.artifacts import Contender, Variant, Verification
from domain.jobs import Precision
from domain.ports import Engine
from domain.records import Record, TrialError
from domain.stage_results import Build, VerifyResult
from storage import records
from tuner.host import failures
from tuner.native import lines
from tuner.results import benchmark, timing, verification
from tuner.results.timing import Timed
from tuner.search import precisions, racing
from worker.engines import MAIN, ONNX
from worker.pipeline import builds, compiling, in_network, recovery, references
from worker.pipeline.context import COMPILE_SECONDS, JobContext

_ROUNDS = 8
_SAMPLES = 2
_TIME_SHARE = 0.25
"""Share of the benchmark's seconds."""


def run(context: JobContext) -> VerifyResult:
    """Raises VerificationFailed when no variant is correct."""
    _close_compilers(context)
    made = context.results.compile.builds
    untuned = _untuned(context, context.results.baseline.engine)
    if untuned is None:
        return VerifyResult(verifications={}, tuned=made[0] if made else None, portfolio=_unmeasured(context, made))
    checked = [_checked(context, build, untuned) for build in made]
    right = [each for each in checked if each.verification.passed]
    if not untuned.passed and not right:
        tuned = {each.build.name: each.verification for each in checked}
        raise benchmark.nothing_right({_untuned_name(context.results.baseline.engine): untuned, **tuned})
    decided, choice = _improved(context, _decide(context, checked), checked, untuned)
    found = {Variant.UNTUNED: _untuned(context, decided.untuned) or untuned}
    if decided.chosen:
        found[Variant.TUNED] = decided.chosen.verification
    return VerifyResult(
        verifications=found,
        tuned=decided.chosen.build if decided.chosen else None,
        untuned=decided.untuned,
        portfolio=tuple(decided.portfolio),
        choice=choice,
    )


def _close_compilers(context: JobContext) -> None:
    """End the processes that tuned and compiled: idle ones would disturb the benchmark."""
    for name in context.toolchains:
        context.engines.close(name, role=MAIN)


def _untuned(context: JobContext, engine: str) -> Verification | None:
    """The verification of the engine's untuned build, from stage ``baseline``; None of a build that was not run."""
    return context.results.baseline.verifications.get(engine) if context.verifies else None


def _checked(context: JobContext, build: Build, untuned: Verification) -> _VerifiedBuild:
    """Verify a build; if it is wrong and the untuned one is correct, rebuild it without the faulty records.

    A build that cannot be repaired is returned as it is, as is one that is emulated: its operators do not run here.
    """
    found = _verify(context, build)
    if found.passed or not untuned.passed or not context.measures or context.limit.is_reached:
        return _VerifiedBuild(build=build, verification=found)
    # The process has the files of the wrong build open.
    builds.process(context, build).close()
    try:
        again = rebuild(context, build, found)
        if again:
            return _VerifiedBuild(build=again, verification=_verify(context, again))
    except (errors.EngineError, errors.TimeLimit) as error:
        recovery.tolerate(context, error, "the second tuned build failed; only the untuned build is left")
    finally:
        _close_compilers(context)
    return _VerifiedBuild(build=build, verification=found)


def compare(
    context: JobContext,
    engine: Engine,
    variant: Variant,
    bundle: Path,
    inputs: Sequence[Path],
    expected: Sequence[Path],
    *,
    kinds: Mapping[str, str],
    rows: verification.Rows | None,
    precision: Precision | None = None,
    place: Mapping[str, Any] | None = None,
) -> Verification:
    """Run a build on the job's device and compare its outputs, by the accuracy gate of its ``precision``.

    ``kinds``: kind of values of each input; ``rows``: runs of the job's data set. Without ``precision``, the requested
    one; without ``place``, where compiled files run. Raises EngineError, Canceled, and the caller's errors.
    """
    computed = precision or precisions.first(context.request)
    try:
        return verification.verify(
            context.engines.get(ONNX),
            engine,
            variant=variant,
            bundle=bundle,
            inputs=inputs,
            expected=expected,
            folder=context.folder / "actual",
            place=context.place if place is None else place,
            precision=str(computed),
            gate=precisions.gate_of(context.request, computed),
            model=context.prepared,
            kinds=kinds,
            seeds=context.seeds,
            rows=rows,
            canceled=context.canceled,
        )
    except errors.EngineRequestFailed as error:
        raise failures.explain(error) from error


def _verify(context: JobContext, build: Build) -> Verification:
    reference = context.engines.get(ONNX)
    inputs, expected = context.seeded_inputs, context.expected_outputs
    try:
        engine = builds.process(context, build).get()
        kinds, bundle = context.results.baseline.kinds, builds.path(context, build)
        return compare(
            context, engine, Variant.TUNED, bundle, inputs, expected, kinds=kinds, rows=context.rows,
            precision=build.precision,
        )  # fmt: skip
    except (errors.EngineError, errors.InvalidRequest) as error:
        # If the job is to stop, its engine may be gone, which says nothing about the build.
        recovery.tolerate(context, error)
        if not reference.alive:
            raise
        context.note(f"the tuned build does not run ({build.name}): {error.message[:500]}")
    except errors.TimeLimit as error:
        recovery.tolerate(context, error, f"the build was not verified ({build.name})")
    return Verification(variant=Variant.TUNED, seeds=context.seeds, outputs=(), precision=str(build.precision))


@dataclass(frozen=True, kw_only=True)
class _VerifiedBuild:
    build: Build
    verification: Verification


@dataclass(frozen=True, kw_only=True)
class _Choice:
    chosen: _VerifiedBuild | None
    untuned: str
    """Engine of the fastest untuned build."""
    portfolio: list[Contender]
    """The fastest first; contenders without a time last."""


def _decide(context: JobContext, checked: Sequence[_VerifiedBuild]) -> _Choice:
    """Raises EngineError, LeaseLost, Canceled."""
    right = {each.build.name: each for each in checked if each.verification.passed}
    engines = _untuned_engines(context)
    medians, crashed = _race(context, right, engines) if context.measures else ({}, {})
    running = [each for name, each in right.items() if name not in crashed]
    chosen = min(running, key=lambda each: medians.get(each.build.name, 0.0), default=None)
    if chosen is None and checked:
        chosen = checked[0]
    untuned = min(engines, key=lambda engine: medians.get(_untuned_name(engine), math.inf))
    _close_others(context, checked, chosen)
    for engine in engines:
        if engine != untuned:
            builds.untuned_process(context, engine).close()
    contenders = [_contender(context, each, chosen, medians, crashed) for each in checked]
    plain = [_untuned_contender(context, engine, untuned, medians, crashed) for engine in engines]
    return _Choice(
        chosen=chosen,
        untuned=untuned,
        portfolio=ordered([*plain, *contenders, *_skipped_contenders(context)]),
    )


def _untuned_engines(context: JobContext) -> list[str]:
    """Engines whose untuned builds may be the fastest, by the rough times of the baseline; its fastest first."""
    baseline = context.results.baseline
    known = {name: seconds for name, seconds in baseline.engines.items() if seconds is not None}
    near = racing.near(known)
    return [baseline.engine, *(name for name in near if near[name] and name != baseline.engine)]


def _improved(
    context: JobContext, decided: _Choice, checked: Sequence[_VerifiedBuild], untuned: Verification
) -> tuple[_Choice, tuple[str, ...]]:
    """Let a build with schedules chosen inside the network compete, too; also return a sentence if it is chosen."""
    if decided.chosen is None or not decided.chosen.verification.passed:
        return decided, ()
    before = decided.chosen.build
    found = in_network.improved(context, before)
    _close_compilers(context)
    if found is None:
        return decided, ()
    decided = _decide(context, [*checked, _checked(context, found.build, untuned)])
    if decided.chosen is None or decided.chosen.build.name != found.build.name:
        return decided, ()
    return decided, (_found_in_network(found.operators, before),)


def _found_in_network(count: int, build: Build) -> str:
    operators = "1 operator" if count == 1 else f"{count} operators"
    schedules = (
        "runs faster in the network with another schedule"
        if count == 1
        else "run faster in the network with other schedules"
    )
    return f"{operators} of {build.name} {schedules}."


def _unmeasured(context: JobContext, made: Sequence[Build]) -> tuple[Contender, ...]:
    """The portfolio of a job that measures nothing."""
    built = [_contender_of(build, verdict="built; not run") for build in made]
    return (*built, *_skipped_contenders(context))


def _race(
    context: JobContext, right: Mapping[str, _VerifiedBuild], engines: Sequence[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """Median seconds per run of each build, of the engines' untuned ones and of the reference; and crashed builds, with
    reasons.

    Nothing is timed if there is nothing to choose between.
    """
    crashed: dict[str, str] = {}
    while True:
        tuned = [name for name in right if name not in crashed]
        plain = [engine for engine in engines if _untuned_name(engine) not in crashed]
        if len(tuned) < 2 and len(plain) < 2:
            return {}, crashed
        timed = _timed(context, [right[name].build for name in tuned], plain)
        try:
            with context.exclusive_device():
                left = context.limit.left_to_repeat
                seconds = min(context.settings.benchmark_seconds, left) * _TIME_SHARE
                times = timing.interleave(
                    timed, rounds=_ROUNDS, samples=_SAMPLES, seconds=seconds, canceled=context.canceled
                )
            return {name: measured.median for name, measured in times.items()}, crashed
        except errors.TimeLimit as error:
            recovery.tolerate(context, error, "the builds were not compared")
            return {}, crashed
        except errors.EngineError as error:
            recovery.tolerate(context, error)
            candidates = {*tuned, *map(_untuned_name, plain[1:])}
            dead = [each.name for each in timed if each.name in candidates and not each.engine.alive]
            if not dead:
                raise
            crashed |= dict.fromkeys(dead, f"crashed in the benchmark: {error.message[:200]}")


def _timed(context: JobContext, made: Sequence[Build], engines: Sequence[str]) -> list[Timed[str]]:
    inputs = context.timed_inputs
    timed = [builds.untuned_process(context, engine).timed(_untuned_name(engine), inputs) for engine in engines]
    if context.reference_shares_device:
        reference = references.timed(context, inputs)
        timed.append(Timed(name=str(reference.name), engine=reference.engine, params=reference.params))
    return [*timed, *(builds.process(context, build).timed(build.name, inputs) for build in made)]


def _close_others(context: JobContext, checked: Sequence[_VerifiedBuild], chosen: _VerifiedBuild | None) -> None:
    for each in checked:
        if each is not chosen:
            builds.process(context, each.build).close()


def _contender(
    context: JobContext,
    each: _VerifiedBuild,
    chosen: _VerifiedBuild | None,
    medians: Mapping[str, float],
    crashed: Mapping[str, str],
) -> Contender:
    build, found = each.build, each.verification
    seconds = medians.get(build.name)
    if not found.passed:
        verdict = _objection(context, build, found)
    elif build.name in crashed:
        verdict = crashed[build.name]
    elif not context.measures:
        verdict = "verified; not timed"
    elif each is chosen or chosen is None or seconds is None:
        verdict = "the fastest tuned build"
    else:
        verdict = f"{seconds / medians[chosen.build.name]:.2f}× the time of {chosen.build.name} in the comparison"
    return replace(_contender_of(build, verdict=verdict), seconds=seconds, verified=found.passed)


def _objection(context: JobContext, build: Build, found: Verification) -> str:
    if not found.outputs:
        return "not verified: the job's total limit" if context.limit.is_reached else "does not run"
    if build.precision is Precision.F32:
        return wrong_results(found)
    return precisions.rejection(found, precisions.gate_of(context.request, build.precision), build.precision)


def wrong_results(found: Verification) -> str:
    """Describe the first output that is wrong."""
    wrong = next((error for error in found.outputs if not error.passed), None)
    return "wrong results" + (f": output {wrong.output}: {wrong.found} ({wrong.allowed} allowed)" if wrong else "")


def _untuned_contender(
    context: JobContext, engine: str, fastest: str, medians: Mapping[str, float], crashed: Mapping[str, str]
) -> Contender:
    name = _untuned_name(engine)
    verification = context.results.baseline.verifications.get(engine)
    verdict = crashed.get(name, "baseline for the tuned builds")
    if engine != fastest and name in medians:
        verdict = f"{medians[name] / medians[_untuned_name(fastest)]:.2f}× the time of {_untuned_name(fastest)}"
    return Contender(
        name=name,
        tuner=None,
        engine=engine,
        precision=str(precisions.first(context.request)),
        seconds=medians.get(name),
        verified=verification is not None and verification.passed,
        verdict=verdict,
    )


def _skipped_contenders(context: JobContext) -> list[Contender]:
    return [_contender_of(skipped.build, verdict=skipped.verdict) for skipped in context.results.compile.skipped]


def _contender_of(build: Build, *, verdict: str) -> Contender:
    return Contender(
        name=build.name,
        tuner=str(build.tuner) if build.tuner else None,
        engine=build.engine,
        precision=str(build.precision),
        rewritten=build.rewritten,
        records=build.records,
        trials=build.trials,
        seconds_tuned=round(build.seconds_tuned, 3),
        verdict=verdict,
    )


def untuned_name(context: JobContext) -> str:
    """The untuned build of the benchmark, as the portfolio calls it."""
    return _untuned_name(builds.engine_name(context, Variant.UNTUNED))


def _untuned_name(engine: str) -> str:
    return f"untuned {engine}"


def ordered(contenders: Sequence[Contender]) -> list[Contender]:
    return sorted(contenders, key=lambda each: (each.seconds is None, not each.verified, each.seconds or 0.0))


_AUDITS = 4
"""Audits of the next records of the same operators, before all of these operators' records are left out."""
_NAMED = 3


@dataclass(kw_only=True)
class _FaultyRecords:
    wrong: dict[tuple[str, str], float] = field(default_factory=dict)
    """Error relative to the operator's largest output, by workload key and schedule digest."""
    failed: set[tuple[str, str]] = field(default_factory=set)

    def __contains__(self, record: Record) -> bool:
        return _identity(record) in self.wrong or _identity(record) in self.failed


def rebuild(context: JobContext, build: Build, found: Verification) -> Build | None:
    """Compile again without the records whose operators are wrong; None if there is no such build.

    ``found``: how the build is wrong. The faulty records are invalidated for all jobs. Raises EngineError and the
    caller's errors if the second build fails.
    """
    candidates = compiling.candidate_records(context, build)
    if not candidates:
        context.note(_refusal(context, build, found) or f"the build without records gives wrong results ({build.name})")
        return None
    try:
        blamed, kept = _audit(context, build, candidates)
    except (errors.EngineError, errors.TimeLimit) as error:
        recovery.tolerate(context, error, "the tuned build gives wrong results, and its records could not be checked")
        return None
    if not blamed.wrong and not blamed.failed:
        refusal = _refusal(context, build, found)
        context.note(
            f"{refusal} Each operator alone gives correct results"
            if refusal
            else "the tuned build gives wrong results, though each operator alone is correct; only the untuned is left"
        )
        return None
    _invalidate(context, candidates, blamed)
    if not kept:
        context.note("no valid record is left; only the untuned build exists")
        return None
    return compiling.rebuild(context, build, kept)


def _refusal(context: JobContext, build: Build, found: Verification) -> str | None:
    """Why a build in a narrower precision missed its accuracy gate, as some networks do; None for f32."""
    if build.precision is Precision.F32 or not found.outputs:
        return None
    reason = precisions.rejection(found, precisions.gate_of(context.request, build.precision), build.precision)
    return f"{build.name}: {reason}"


def _audit(context: JobContext, build: Build, candidates: Sequence[Record]) -> tuple[_FaultyRecords, list[Record]]:
    """Return the faulty records, and those that are left. Raises EngineError."""
    blamed = _FaultyRecords()
    kept = suspects = list(candidates)
    for _ in range(_AUDITS):
        found = _ask(context, build, suspects, blamed)
        if not found:
            return blamed, kept
        kept = [record for record in kept if record not in blamed]
        suspects = [record for record in kept if record.key.workload_key in found]
        if not suspects:
            return blamed, kept
    return blamed, [record for record in kept if record not in suspects]


def _ask(context: JobContext, build: Build, suspects: Sequence[Record], blamed: _FaultyRecords) -> set[str]:
    """Audit the records that the engine would choose; add the faulty ones and return their workloads."""
    path = context.folder / "suspects.jsonl"
    builds.write(path, [record.schedule for record in suspects])
    params = {**builds.params(context, build), "records": str(path), "runner": context.runner}
    answer = context.ask(context.compiler(build.engine), "audit", params, timeout=COMPILE_SECONDS)
    by_line = {record.schedule.strip(): _identity(record) for record in suspects}
    wrong = {by_line[each["line"].strip()]: float(each["max_rel"]) for each in answer["wrong"]}
    failed = {by_line[each["line"].strip()] for each in answer["failed"]}
    blamed.wrong.update(wrong)
    blamed.failed.update(failed)
    return {workload for workload, _ in (*wrong, *failed)}


def _invalidate(context: JobContext, candidates: Sequence[Record], blamed: _FaultyRecords) -> None:
    """Invalidate wrong records in the store; records that could not be run alone are only left out of this build."""
    invalidated = {_identity(record): record for record in candidates if _identity(record) in blamed.wrong}
    with context.database.transaction() as session:
        for identity, record in invalidated.items():
            message = f"off by {blamed.wrong[identity]:.3g} of the largest output, against TVM's default schedule"
            records.invalidate(
                session,
                record.key,
                record.schedule_digest,
                error=TrialError.WRONG_RESULT,
                message=message,
                rewrite=partial(lines.as_wrong, record.tuner),
            )
    context.note(_audit_note(invalidated, blamed))


def _audit_note(invalidated: dict[tuple[str, str], Record], blamed: _FaultyRecords) -> str:
    parts = []
    if invalidated:
        names = [record.key.workload_key[:100] for record in invalidated.values()]
        named = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
        parts.append(f"records with wrong results were invalidated: {len(invalidated)}, of {named}")
    if blamed.failed:
        parts.append(f"records that failed to build or run were left out: {len(blamed.failed)}")
    return f"the tuned build gives wrong results; {'; '.join(parts)}"


def _identity(record: Record) -> tuple[str, str]:
    return record.key.workload_key, record.schedule_digest
