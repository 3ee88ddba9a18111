"""The model once more in int8, where a job considers that: with scales found on inputs that judge nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from domain import errors
from domain.jobs import Precision
from tuner import verification
from worker.engines import REFERENCE
from worker.pipeline.work import CHECK_SECONDS, Work, specs

_QUANTIZE_SECONDS = 1800.0
_CALIBRATION = "calibration"
"""Folder of the inputs."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    files: list[str] = field(default_factory=list)
    """Relative to the work folder."""
    quantized: bool = False
    choice: list[str] = field(default_factory=list)
    """Sentences for the report."""


def quantize(work: Work, inputs: list[dict[str, object]], engines: Sequence[str], *, rewritten: bool) -> Outcome:
    """Of the rewritten model, or of the prepared one; ``inputs`` are its own, ``engines`` those that build int8.

    With precision ``auto`` a model that cannot be quantized is one that is not considered in int8. Raises LeaseLost,
    and where int8 was asked for, EngineError and the caller's errors.
    """
    try:
        counts = _quantize(work, inputs, rewritten=rewritten)
        params = {"model": str(work.quantized)}
        for name in engines:
            work.ask(work.compiler(name), "check", params, timeout=CHECK_SECONDS)
    except errors.TunesmithError as error:
        work.keeper.check()
        if work.request.precision is Precision.INT8:
            raise
        said = f"int8 is not considered: {error.message[:300].rstrip('.')}."
        work.note(said)
        return Outcome(choice=[said])
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    return Outcome(
        files=[work.quantized.name], quantized=True, choice=[f"For int8, scales were found on seeded inputs: {told}."]
    )


def _quantize(work: Work, inputs: list[dict[str, object]], *, rewritten: bool) -> dict[str, int]:
    reference = work.engines.get(REFERENCE)
    seeded = verification.seed_inputs(
        reference,
        specs(inputs),
        work.folder / _CALIBRATION,
        model=work.prepared,
        seeds=verification.CALIBRATION_SEEDS,
    )
    partial = work.quantized.with_name(f"partial-{work.quantized.name}")
    params = {
        "path": str(work.rewritten if rewritten else work.prepared),
        "inputs": [str(path) for path in seeded.paths],
        "out_path": str(partial),
    }
    answer = work.ask(reference, "quantize", params, timeout=_QUANTIZE_SECONDS)
    partial.replace(work.quantized)
    return {str(name): int(count) for name, count in answer["quantized"].items()}
