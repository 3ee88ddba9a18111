"""Stage ``baseline``: the reference's outputs on seeded inputs, an untuned build, and a quick timing of both."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from domain import errors
from domain.artifacts import Variant
from domain.ports import Engine
from tuner import benchmark, verification
from tuner.benchmark import Contender
from worker.engines import REFERENCE, RELAY
from worker.pipeline import building, measuring
from worker.pipeline.work import EXPECTED, INPUTS, UNTUNED, Outcome, Work

_TIME_SECONDS = 600.0
_RUNS = {"number": 3, "repeat": 3}


def run(work: Work) -> Outcome:
    """Raises EngineError, and UnknownTarget when this CPU cannot run code for the target."""
    reference = work.engines.get(REFERENCE)
    inputs = verification.make_inputs(reference, work.inputs, work.folder / INPUTS)
    prepared = Path(work.compile_params["model"])
    expected = verification.run_reference(
        reference, prepared, inputs, work.folder / EXPECTED, threads=work.threads, canceled=work.canceled
    )
    files = building.compile_variant(work, UNTUNED, records=None).files
    seconds = _time(work, reference, prepared, inputs[0])
    made = {INPUTS: _relative(work, inputs), EXPECTED: _relative(work, expected)}
    return {"files": [*files, *made[INPUTS], *made[EXPECTED]], **made, "seconds": seconds}


def _time(work: Work, reference: Engine, prepared: Path, inputs: Path) -> dict[str, float]:
    """Seconds per run: a first impression, not evidence."""
    compiled = work.engines.get(RELAY, role=Variant.UNTUNED)
    contenders = [
        benchmark.reference_contender(reference, prepared, inputs, threads=work.threads),
        benchmark.compiled_contender(Variant.UNTUNED, compiled, work.folder / UNTUNED, inputs, threads=work.threads),
    ]
    with measuring.alone(work):
        return {str(contender.variant): _median(work, contender) for contender in contenders}


def _median(work: Work, contender: Contender) -> float:
    try:
        answer = work.ask(contender.engine, "time", {**contender.params, **_RUNS}, timeout=_TIME_SECONDS)
    except errors.EngineCrashed as error:
        if error.details.get("signal") != "SIGILL":
            raise
        raise errors.UnknownTarget(
            f"this worker's CPU, {work.placement.device.name}, cannot run code for {work.placement.target.text!r}",
            hint="Use 'native', or a worker that has such a CPU.",
        ) from error
    return statistics.median(float(sample) for sample in answer["samples"])


def _relative(work: Work, paths: Sequence[Path]) -> list[str]:
    return [str(path.relative_to(work.folder)) for path in paths]
