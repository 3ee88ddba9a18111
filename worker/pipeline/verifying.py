"""Stage ``verify``: every compiled variant against the reference; nothing wrong is ever published."""

from __future__ import annotations

from domain import errors
from domain.artifacts import Variant, Verification
from domain.jobs import Stage
from storage import codec
from tuner import benchmark, verification
from worker.engines import REFERENCE, RELAY
from worker.pipeline import variants
from worker.pipeline.work import EXPECTED, INPUTS, Outcome, Work


def run(work: Work) -> Outcome:
    """Raises VerificationFailed when no variant is correct."""
    # What tuned and compiled is not needed any more, and its idle processes would disturb the benchmark.
    work.engines.close(RELAY, role="main")
    found = {variant: _verify(work, variant) for variant in variants.compiled(work)}
    if not any(each.passed for each in found.values()):
        benchmark.judge({}, found)
    return {"verifications": {str(variant): codec.dump(each) for variant, each in found.items()}}


def load(work: Work) -> dict[Variant, Verification]:
    stored = work.outcomes[Stage.VERIFY]["verifications"]
    return {Variant(variant): codec.load(Verification, data) for variant, data in stored.items()}


def _verify(work: Work, variant: Variant) -> Verification:
    reference = work.engines.get(REFERENCE)
    try:
        return verification.verify(
            reference,
            variants.engine(work, variant),
            variant=variant,
            bundle=variants.folder(work, variant),
            inputs=work.arrays(INPUTS),
            expected=work.arrays(EXPECTED),
            folder=work.folder / "actual",
            threads=work.threads,
            canceled=work.canceled,
        )
    except errors.EngineError as error:
        # Of a job that is to stop the engine may be gone, which says nothing about the build.
        work.keeper.check()
        if not reference.alive:
            raise
        work.note(f"the {variant} build does not run: {error.message[:500]}")
        return Verification(variant=variant, seeds=verification.SEEDS, outputs=())
