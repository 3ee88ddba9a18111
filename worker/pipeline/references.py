"""What a job's builds are compared with: ONNX Runtime; of an IRModule, which that cannot run, its own plain build.

The plain build is TVM's too, but made another way: the function as it was given, without schedule, vectors or
optimization, so that what those do wrong shows. It proves nothing of what all builds of TVM have in common.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from domain.artifacts import ONNX_RUNTIME, PLAIN_BUILD, Variant
from domain.models import ModelFormat
from domain.ports import Engine
from tuner.results import timing, verification
from tuner.results.timing import Timed
from worker.engines import ONNX, replace_folder
from worker.pipeline.context import COMPILE_SECONDS, EXPECTED, Work

_PLAIN = "reference"
"""Folder of the plain build."""


def name(work: Work) -> str:
    return PLAIN_BUILD if _is_plain(work) else ONNX_RUNTIME


def make(work: Work) -> list[str]:
    """What the reference is run from, as files relative to the work folder. Raises EngineError, the caller's errors."""
    if not _is_plain(work):
        return []
    partial = work.folder / f"partial-{_PLAIN}"
    shutil.rmtree(partial, ignore_errors=True)
    params = {"model": str(work.prepared), "out_dir": str(partial)}
    files = work.ask(_plain_engine(work), "compile_plain", params, timeout=COMPILE_SECONDS)["files"]
    replace_folder(partial, work.folder / _PLAIN)
    return [f"{_PLAIN}/{file}" for file in files]


def run(work: Work, inputs: Sequence[Path]) -> list[Path]:
    """The outputs for each of ``inputs``. Raises EngineError, Canceled."""
    folder, canceled = work.folder / EXPECTED, work.canceled
    if _is_plain(work):
        bundle = work.folder / _PLAIN
        return verification.run_plain(_plain_engine(work), bundle, inputs, folder, canceled=canceled)
    reference = work.engines.get(ONNX)
    return verification.run_reference(reference, work.prepared, inputs, folder, threads=work.threads, canceled=canceled)


def timed(work: Work, inputs: Path) -> Timed[Variant]:
    if _is_plain(work):
        place = {"threads": 1, "target": "llvm", "runner": None}
        bundle = work.folder / _PLAIN
        return timing.compiled(Variant.REFERENCE, _plain_engine(work), bundle, inputs, place=place)
    return timing.reference(work.engines.get(ONNX), work.prepared, inputs, threads=work.threads)


def _is_plain(work: Work) -> bool:
    return work.model.facts.format is ModelFormat.IRMODULE


def _plain_engine(work: Work) -> Engine:
    """A process of its own, as every variant has."""
    return work.engines.get(ModelFormat.IRMODULE.reader, role=Variant.REFERENCE)
