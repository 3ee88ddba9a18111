"""Stage ``verify``: every build against the reference, and the fastest of those that are right.

Nothing wrong is ever published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from domain import errors
from domain.artifacts import Variant, Verification
from domain.jobs import Precision, Stage
from domain.ports import Engine
from storage import codec
from tuner import benchmark, failures, precisions, verification
from worker.engines import REFERENCE
from worker.pipeline import auditing, builds, finals, variants
from worker.pipeline.builds import Build
from worker.pipeline.finals import Checked
from worker.pipeline.work import EXPECTED, INPUTS, KINDS, Outcome, Work


def run(work: Work) -> Outcome:
    """``tuned`` is the fastest build that is right, or the most promising one where none is.

    Raises VerificationFailed when no variant is correct.
    """
    _close_compilers(work)
    made = [builds.load(data) for data in work.outcomes[Stage.COMPILE]["builds"]]
    if not work.measures:
        return {
            "verifications": {},
            "tuned": made[0].dump() if made else None,
            "portfolio": finals.unmeasured(work, made),
        }
    untuned = _untuned(work)
    checked = [_checked(work, build, untuned) for build in made]
    right = [each for each in checked if each.verification.passed]
    if not untuned.passed and not right:
        tuned = {} if not checked else {Variant.TUNED: checked[0].verification}
        raise benchmark.nothing_right({Variant.UNTUNED: untuned, **tuned})
    decided = finals.run(work, checked)
    found = {Variant.UNTUNED: untuned}
    if decided.chosen:
        found[Variant.TUNED] = decided.chosen.verification
    return {
        "verifications": {str(variant): codec.dump(each) for variant, each in found.items()},
        "tuned": decided.chosen.build.dump() if decided.chosen else None,
        "portfolio": [codec.dump(contender) for contender in decided.portfolio],
    }


def _close_compilers(work: Work) -> None:
    """What tuned and compiled is not needed any more, and its idle processes would disturb the benchmark."""
    for name in work.toolchains:
        work.engines.close(name, role="main")


def _untuned(work: Work) -> Verification:
    """The baseline has compared it already."""
    stored = work.outcomes[Stage.BASELINE]["verifications"][variants.engine_name(work, Variant.UNTUNED)]
    return codec.load(Verification, stored)


def _checked(work: Work, build: Build, untuned: Verification) -> Checked:
    """The build once more without the records that are to blame, where it is wrong and the model can be built rightly.

    It stays as it is where there is no such build.
    """
    found = _verify(work, build)
    if found.passed or not untuned.passed:
        return Checked(build=build, verification=found)
    # The process has the files of the wrong build open.
    work.engines.close(build.engine, role=build.folder)
    try:
        again = auditing.rebuild(work, build, found)
        return (
            Checked(build=again, verification=_verify(work, again))
            if again
            else Checked(build=build, verification=found)
        )
    except errors.EngineError as error:
        work.keeper.check()
        work.note(f"the second tuned build failed, the untuned one is left: {error.message[:500]}")
        return Checked(build=build, verification=found)
    finally:
        _close_compilers(work)


def load(work: Work) -> dict[Variant, Verification]:
    stored = work.outcomes[Stage.VERIFY]["verifications"]
    return {Variant(variant): codec.load(Verification, data) for variant, data in stored.items()}


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
            work.engines.get(REFERENCE),
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
    reference = work.engines.get(REFERENCE)
    inputs, expected = work.arrays(INPUTS), work.arrays(EXPECTED)
    precision = Precision(build.precision)
    try:
        engine = work.engines.get(build.engine, role=build.folder)
        kinds = work.outcomes[Stage.BASELINE].get(KINDS, {})
        bundle = build.path(work)
        return compare(work, engine, Variant.TUNED, bundle, inputs, expected, kinds=kinds, precision=precision)
    except (errors.EngineError, errors.InvalidRequest) as error:
        # Of a job that is to stop the engine may be gone, which says nothing about the build.
        work.keeper.check()
        if not reference.alive:
            raise
        work.note(f"the tuned build does not run ({build.name}): {error.message[:500]}")
        seeds = verification.seeds_for(work.request.precision)
        return Verification(variant=Variant.TUNED, seeds=seeds, outputs=(), precision=build.precision)
