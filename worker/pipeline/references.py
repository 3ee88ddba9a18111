"""The reference that a job's builds are compared with: ONNX Runtime or, for an IRModule, the module's plain build.

The plain build is also made by TVM, but from the function as given, without schedule, vectors or optimization, so that
errors of these show. Errors that all builds of TVM share do not show.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from domain import errors
from domain.artifacts import ONNX_RUNTIME, PLAIN_BUILD, Variant
from domain.jobs import Precision
from domain.models import ModelFormat
from domain.ports import Engine
from tuner.results import timing, verification
from tuner.results.timing import Timed
from worker.engines import MAIN, ONNX, replace_folder
from worker.pipeline import recovery
from worker.pipeline.context import COMPILE_SECONDS, EXPECTED, JobContext

_PLAIN = "reference"
"""Folder of the plain build."""


def name(context: JobContext) -> str:
    return PLAIN_BUILD if _is_plain(context) else ONNX_RUNTIME


def make(context: JobContext) -> list[str]:
    """Make the reference's files, relative to the work folder. Raises EngineError and the caller's errors."""
    if not _is_plain(context):
        return []
    partial = context.folder / f"partial-{_PLAIN}"
    shutil.rmtree(partial, ignore_errors=True)
    params = {"model": str(context.prepared), "out_dir": str(partial)}
    files = context.ask(_plain_engine(context), "compile_plain", params, timeout=COMPILE_SECONDS)["files"]
    replace_folder(partial, context.folder / _PLAIN)
    return [f"{_PLAIN}/{file}" for file in files]


def run(context: JobContext, inputs: Sequence[Path], *, to: str = EXPECTED) -> list[Path]:
    """Run the reference on each of ``inputs`` and return the outputs. Raises EngineError, Canceled."""
    folder, canceled = context.folder / to, context.canceled
    if _is_plain(context):
        bundle = context.folder / _PLAIN
        return verification.run_plain(_plain_engine(context), bundle, inputs, folder, canceled=canceled)
    reference = context.engines.get(ONNX)
    return verification.run_reference(
        reference, context.prepared, inputs, folder, threads=context.threads, canceled=canceled
    )


def run_perturbed(context: JobContext, inputs: Sequence[Path], expected: Sequence[Path]) -> list[Path]:
    """Run ONNX Runtime with rounded operands and return the results' files, from which the limits of f32 follow.

    None for other references, jobs without f32, or if that fails: builds are then judged by fixed limits.
    """
    if _is_plain(context) or context.request.precision not in (Precision.F32, Precision.AUTO):
        return []
    try:
        return verification.run_perturbed(
            context.engines.get(ONNX),
            context.prepared,
            inputs,
            expected,
            threads=context.threads,
            canceled=context.canceled,
        )
    except errors.EngineError as error:
        recovery.tolerate(context, error, "the rounding errors of ONNX Runtime could not be estimated")
        return []


def timed(context: JobContext, inputs: Path) -> Timed[Variant]:
    if _is_plain(context):
        place = {"threads": 1, "target": "llvm", "runner": None}
        bundle = context.folder / _PLAIN
        return timing.compiled(Variant.REFERENCE, _plain_engine(context), bundle, inputs, place=place)
    return timing.reference(context.engines.get(ONNX), context.prepared, inputs, threads=context.threads)


def competes(context: JobContext) -> bool:
    """Whether the bundle may run with what runs the reference: ONNX Runtime, where it shares the device."""
    return context.measures and context.reference_shares_device and not _is_plain(context)


def version(context: JobContext) -> str:
    """The version of ONNX Runtime. Raises EngineError."""
    return str(context.engines.get(ONNX).hello["toolchain"].get("onnxruntime", ""))


def close(context: JobContext) -> None:
    """End the process of the reference; the next use starts a new one."""
    if _is_plain(context):
        context.engines.close(ModelFormat.IRMODULE.reader, role=Variant.REFERENCE)
    else:
        context.engines.close(ONNX, role=MAIN)


def _is_plain(context: JobContext) -> bool:
    return context.model.facts.format is ModelFormat.IRMODULE


def _plain_engine(context: JobContext) -> Engine:
    """The process of the plain build; every variant has its own."""
    return context.engines.get(ModelFormat.IRMODULE.reader, role=Variant.REFERENCE)
