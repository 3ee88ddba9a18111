"""Stage ``verify``: every build against the reference, and the fastest of those that are right.

Nothing wrong is ever published. Builds that are right are timed side by side in one short run, shorter than the
benchmark that decides between untuned and tuned: a wrong choice among builds that are nearly level costs next to
nothing.

A tuned build that is wrong is audited: the engine says which records are to blame, these become failures in the store,
and the build is made again without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

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
from tuner.search import precisions
from worker.engines import ONNX
from worker.pipeline import builds, compiling, measuring, recovery, references
from worker.pipeline.context import COMPILE_SECONDS, Work

_ROUNDS = 8
_SAMPLES = 2
_TIME_SHARE = 0.25
"""Of the benchmark's seconds."""


def run(work: Work) -> VerifyResult:
    """Raises VerificationFailed when no variant is correct."""
    _close_compilers(work)
    made = work.results.compile.builds
    if not work.measures:
        return VerifyResult(verifications={}, tuned=made[0] if made else None, portfolio=_unmeasured(work, made))
    untuned = _untuned(work)
    checked = [_checked(work, build, untuned) for build in made]
    right = [each for each in checked if each.verification.passed]
    if not untuned.passed and not right:
        tuned = {} if not checked else {Variant.TUNED: checked[0].verification}
        raise benchmark.nothing_right({Variant.UNTUNED: untuned, **tuned})
    decided = _decide(work, checked)
    found = {Variant.UNTUNED: untuned}
    if decided.chosen:
        found[Variant.TUNED] = decided.chosen.verification
    return VerifyResult(
        verifications=found,
        tuned=decided.chosen.build if decided.chosen else None,
        portfolio=tuple(decided.portfolio),
    )


def _close_compilers(work: Work) -> None:
    """What tuned and compiled is not needed any more, and its idle processes would disturb the benchmark."""
    for name in work.toolchains:
        work.engines.close(name, role="main")


def _untuned(work: Work) -> Verification:
    """The baseline has compared it already."""
    return work.results.baseline.verifications[builds.engine_name(work, Variant.UNTUNED)]


def _checked(work: Work, build: Build, untuned: Verification) -> _Checked:
    """The build once more without the records that are to blame, where it is wrong and the model can be built rightly.

    It stays as it is where there is no such build.
    """
    found = _verify(work, build)
    if found.passed or not untuned.passed:
        return _Checked(build=build, verification=found)
    # The process has the files of the wrong build open.
    work.engines.close(build.engine, role=build.folder)
    try:
        again = rebuild(work, build, found)
        return (
            _Checked(build=again, verification=_verify(work, again))
            if again
            else _Checked(build=build, verification=found)
        )
    except errors.EngineError as error:
        recovery.forgive(work, error, "the second tuned build failed; only the untuned build is left")
        return _Checked(build=build, verification=found)
    finally:
        _close_compilers(work)


def compare(
    work: Work,
    engine: Engine,
    variant: Variant,
    bundle: Path,
    inputs: Sequence[Path],
    expected: Sequence[Path],
    *,
    kinds: Mapping[str, str],
    precision: Precision | None = None,
) -> Verification:
    """Run a build where the job measures and compare, by the accuracy gate of its ``precision``.

    ``kinds``: of values that each input was given. Without a ``precision``, the one that was asked for. Raises
    EngineError, Canceled, and the caller's errors.
    """
    computed = precision or precisions.first(work.request)
    try:
        return verification.verify(
            work.engines.get(ONNX),
            engine,
            variant=variant,
            bundle=bundle,
            inputs=inputs,
            expected=expected,
            folder=work.folder / "actual",
            place=work.place,
            precision=str(computed),
            gate=precisions.gate_of(work.request, computed),
            model=work.prepared,
            kinds=kinds,
            seeds=verification.seeds_for(work.request.precision),
            canceled=work.canceled,
        )
    except errors.EngineRequestFailed as error:
        raise failures.explain(error) from error


def _verify(work: Work, build: Build) -> Verification:
    reference = work.engines.get(ONNX)
    inputs, expected = work.seeded_inputs, work.expected_outputs
    try:
        engine = work.engines.get(build.engine, role=build.folder)
        kinds, bundle = work.results.baseline.kinds, builds.path(work, build)
        return compare(work, engine, Variant.TUNED, bundle, inputs, expected, kinds=kinds, precision=build.precision)
    except (errors.EngineError, errors.InvalidRequest) as error:
        # Of a job that is to stop the engine may be gone, which says nothing about the build.
        recovery.forgive(work, error)
        if not reference.alive:
            raise
        work.note(f"the tuned build does not run ({build.name}): {error.message[:500]}")
        seeds = verification.seeds_for(work.request.precision)
        return Verification(variant=Variant.TUNED, seeds=seeds, outputs=(), precision=str(build.precision))


@dataclass(frozen=True, kw_only=True)
class _Checked:
    build: Build
    verification: Verification


@dataclass(frozen=True, kw_only=True)
class _Decided:
    chosen: _Checked | None
    portfolio: list[Contender]
    """The fastest first; behind them those without a time."""


def _decide(work: Work, checked: Sequence[_Checked]) -> _Decided:
    """Raises EngineError, LeaseLost, Canceled."""
    right = {each.build.name: each for each in checked if each.verification.passed}
    medians, crashed = _race(work, right) if len(right) > 1 else ({}, {})
    running = [each for name, each in right.items() if name not in crashed]
    chosen = min(running, key=lambda each: medians.get(each.build.name, 0.0), default=None)
    if chosen is None and checked:
        chosen = checked[0]
    _close_others(work, checked, chosen)
    told = [_contender(work, each, chosen, medians, crashed) for each in checked]
    return _Decided(
        chosen=chosen, portfolio=ordered([_untuned_contender(work, medians), *told, *_skipped_contenders(work)])
    )


def _unmeasured(work: Work, made: Sequence[Build]) -> tuple[Contender, ...]:
    """Of a job that runs nothing: what was built, and what was not."""
    built = [_contender_of(build, verdict="built; not run") for build in made]
    return (*built, *_skipped_contenders(work))


def _race(work: Work, right: Mapping[str, _Checked]) -> tuple[dict[str, float], dict[str, str]]:
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
            recovery.forgive(work, error)
            dead = [each.name for each in timed if each.name in names and not each.engine.alive]
            if not dead:
                raise
            crashed |= dict.fromkeys(dead, f"crashed in the benchmark: {error.message[:200]}")
    return {}, crashed


def _timed(work: Work, made: Sequence[Build]) -> list[Timed[str]]:
    inputs = work.seeded_inputs[0]
    untuned = builds.engine(work, Variant.UNTUNED), builds.folder(work, Variant.UNTUNED)
    timed: list[Timed[str]] = [timing.compiled(untuned_name(work), *untuned, inputs, place=work.place)]
    if work.reference_shares_device:
        reference = references.timed(work, inputs)
        timed.append(Timed(name=str(reference.name), engine=reference.engine, params=reference.params))
    for build in made:
        engine = work.engines.get(build.engine, role=build.folder)
        timed.append(timing.compiled(build.name, engine, builds.path(work, build), inputs, place=work.place))
    return timed


def _close_others(work: Work, checked: Sequence[_Checked], chosen: _Checked | None) -> None:
    for each in checked:
        if each is not chosen:
            work.engines.close(each.build.engine, role=each.build.folder)


def _contender(
    work: Work,
    each: _Checked,
    chosen: _Checked | None,
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
        verdict = f"{seconds / medians[chosen.build.name]:.2f}× the time of {chosen.build.name} in the comparison"
    return replace(_contender_of(build, verdict=verdict), seconds=seconds, verified=found.passed)


def _objection(work: Work, build: Build, found: Verification) -> str:
    if not found.outputs:
        return "does not run"
    if build.precision is Precision.F32:
        return "wrong results"
    return precisions.passes(found, precisions.gate_of(work.request, build.precision), build.precision)[1]


def _untuned_contender(work: Work, medians: Mapping[str, float]) -> Contender:
    name = untuned_name(work)
    engine = builds.engine_name(work, Variant.UNTUNED)
    verification = work.results.baseline.verifications.get(engine)
    return Contender(
        name=name,
        tuner=None,
        engine=engine,
        precision=str(precisions.first(work.request)),
        seconds=medians.get(name),
        verified=verification is not None and verification.passed,
        verdict="baseline for the tuned builds",
    )


def _skipped_contenders(work: Work) -> list[Contender]:
    return [_contender_of(skipped.build, verdict=skipped.verdict) for skipped in work.results.compile.skipped]


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


def untuned_name(work: Work) -> str:
    return f"untuned {work.results.baseline.engine}"


def ordered(contenders: Sequence[Contender]) -> list[Contender]:
    return sorted(contenders, key=lambda each: (each.seconds is None, not each.verified, each.seconds or 0.0))


_AUDITS = 4
"""Of blaming what comes next for the same operators, before all of their records are left out."""
_NAMED = 3


@dataclass(kw_only=True)
class _Blamed:
    wrong: dict[tuple[str, str], float] = field(default_factory=dict)
    """Share of its largest output by which the operator is off, by workload key and digest of the schedule."""
    failed: set[tuple[str, str]] = field(default_factory=set)

    def __contains__(self, record: Record) -> bool:
        return _identity(record) in self.wrong or _identity(record) in self.failed


def rebuild(work: Work, build: Build, found: Verification) -> Build | None:
    """Compile again without the records whose operators compute something else; None where there is no such build.

    ``found``: how the build is wrong. Nobody gets those records again. Raises EngineError and the caller's errors when
    the second build fails.
    """
    candidates = compiling.candidate_records(work, build)
    if not candidates:
        work.note(_refusal(work, build, found) or f"the build without records gives wrong results ({build.name})")
        return None
    try:
        blamed, kept = _audit(work, build, candidates)
    except errors.EngineError as error:
        recovery.forgive(work, error, "the tuned build gives wrong results, and its records could not be checked")
        return None
    if not blamed.wrong and not blamed.failed:
        refusal = _refusal(work, build, found)
        work.note(
            f"{refusal} Each operator alone gives correct results"
            if refusal
            else "the tuned build gives wrong results, though each operator alone is correct; only the untuned is left"
        )
        return None
    _condemn(work, candidates, blamed)
    if not kept:
        work.note("no valid record is left; only the untuned build exists")
        return None
    return compiling.rebuild(work, build, kept)


def _refusal(work: Work, build: Build, found: Verification) -> str | None:
    """Of a narrower precision: its limits are there to be missed by networks that do not bear it. None of f32."""
    if build.precision is Precision.F32 or not found.outputs:
        return None
    said = precisions.passes(found, precisions.gate_of(work.request, build.precision), build.precision)[1]
    return f"{build.name}: {said}"


def _audit(work: Work, build: Build, candidates: Sequence[Record]) -> tuple[_Blamed, list[Record]]:
    """What is to blame, and the records that are left. Raises EngineError."""
    blamed = _Blamed()
    kept = suspects = list(candidates)
    for _ in range(_AUDITS):
        found = _ask(work, build, suspects, blamed)
        if not found:
            return blamed, kept
        kept = [record for record in kept if record not in blamed]
        suspects = [record for record in kept if record.key.workload_key in found]
        if not suspects:
            return blamed, kept
    return blamed, [record for record in kept if record not in suspects]


def _ask(work: Work, build: Build, suspects: Sequence[Record], blamed: _Blamed) -> set[str]:
    """Add what the engine blames of what it would choose; returns the workloads concerned."""
    path = work.folder / "suspects.jsonl"
    builds.write(path, [record.schedule for record in suspects])
    params = {**builds.params(work, build), "records": str(path), "runner": work.runner}
    answer = work.ask(work.compiler(build.engine), "audit", params, timeout=COMPILE_SECONDS)
    by_line = {record.schedule.strip(): _identity(record) for record in suspects}
    wrong = {by_line[each["line"].strip()]: float(each["max_rel"]) for each in answer["wrong"]}
    failed = {by_line[each["line"].strip()] for each in answer["failed"]}
    blamed.wrong.update(wrong)
    blamed.failed.update(failed)
    return {workload for workload, _ in (*wrong, *failed)}


def _condemn(work: Work, candidates: Sequence[Record], blamed: _Blamed) -> None:
    """Make failures of the wrong records, in the store; those that only failed alone are not used for this build."""
    condemned = {_identity(record): record for record in candidates if _identity(record) in blamed.wrong}
    with work.database.transaction() as session:
        for identity, record in condemned.items():
            message = f"off by {blamed.wrong[identity]:.3g} of the largest output, against TVM's default schedule"
            records.condemn(
                session,
                record.key,
                record.schedule_digest,
                error=TrialError.WRONG_RESULT,
                message=message,
                rewrite=partial(lines.as_wrong, record.tuner),
            )
    work.note(_told(condemned, blamed))


def _told(condemned: dict[tuple[str, str], Record], blamed: _Blamed) -> str:
    parts = []
    if condemned:
        names = [record.key.workload_key[:100] for record in condemned.values()]
        named = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
        parts.append(f"records with wrong results were invalidated: {len(condemned)}, of {named}")
    if blamed.failed:
        parts.append(f"records that failed to build or run were left out: {len(blamed.failed)}")
    return f"the tuned build gives wrong results; {'; '.join(parts)}"


def _identity(record: Record) -> tuple[str, str]:
    return record.key.workload_key, record.schedule_digest
