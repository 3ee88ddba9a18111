"""Stage ``verify``: every compiled variant against the reference; nothing wrong is ever published."""

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
from worker.pipeline import auditing, variants
from worker.pipeline.work import EXPECTED, INPUTS, KINDS, Outcome, Work


def run(work: Work) -> Outcome:
    """Raises VerificationFailed when no variant is correct."""
    _close_compilers(work)
    if not work.measures:
        return {"verifications": {}}
    found = {variant: _verify(work, variant) for variant in variants.compiled(work)}
    if _is_spoiled(found):
        found[Variant.TUNED] = _again(work, found[Variant.TUNED])
    if not any(each.passed for each in found.values()):
        raise benchmark.nothing_right(found)
    return {"verifications": {str(variant): codec.dump(each) for variant, each in found.items()}}


def _close_compilers(work: Work) -> None:
    """What tuned and compiled is not needed any more, and its idle processes would disturb the benchmark."""
    for name in work.toolchains:
        work.engines.close(name, role="main")


def _is_spoiled(found: dict[Variant, Verification]) -> bool:
    """Whether the model can be compiled rightly, and was not with the records."""
    return Variant.TUNED in found and not found[Variant.TUNED].passed and found[Variant.UNTUNED].passed


def _again(work: Work, wrong: Verification) -> Verification:
    """The verification of a tuned build without the records that are to blame; ``wrong`` where there is none."""
    # It has the files of the wrong build open.
    work.engines.close(variants.engine_name(work, Variant.TUNED), role=Variant.TUNED)
    try:
        return _verify(work, Variant.TUNED) if auditing.rebuild(work) else wrong
    except errors.EngineError as error:
        work.keeper.check()
        work.note(f"the second tuned build failed, the untuned one is left: {error.message[:500]}")
        return wrong
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


def _verify(work: Work, variant: Variant) -> Verification:
    if variant is Variant.UNTUNED:
        # The baseline has compared it already.
        stored = work.outcomes[Stage.BASELINE]["verifications"][variants.engine_name(work, variant)]
        return codec.load(Verification, stored)
    reference = work.engines.get(REFERENCE)
    inputs, expected = work.arrays(INPUTS), work.arrays(EXPECTED)
    try:
        engine = variants.engine(work, variant)
        kinds = work.outcomes[Stage.BASELINE].get(KINDS, {})
        return compare(work, engine, variant, variants.folder(work, variant), inputs, expected, kinds=kinds)
    except (errors.EngineError, errors.InvalidRequest) as error:
        # Of a job that is to stop the engine may be gone, which says nothing about the build.
        work.keeper.check()
        if not reference.alive:
            raise
        work.note(f"the {variant} build does not run: {error.message[:500]}")
        precision = str(work.request.precision)
        seeds = verification.seeds_for(work.request.precision)
        return Verification(variant=variant, seeds=seeds, outputs=(), precision=precision)
