"""Functions of builder and measuring processes for one candidate schedule."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
from tvm import s_tir, te

from tuner.engines.relax import cuda, kernels, records, targets
from tuner.engines.relax.release import RELEASE
from tuner.engines.runtime import candidates, compiling, faults
from tuner.engines.runtime.targets import native_cpu

_TENSORIZES = "Tensorize"
"""Name, in a trace, of the primitive that needs tensor intrinsics."""

set_up = targets.leave_out_intrinsics


def build(definition: str, line: str, target: str, threads: int, path: str) -> tuple[str | None, Any]:
    """Build the candidate of a record line into the shared library ``path``.

    Returns ``(None, (device, shapes and dtypes of its arguments))`` or ``(TrialError value, message)``. Weights are in
    the layout that the schedule asks for, as they will be inside a network.
    """
    resolved = targets.resolve(target, threads)
    if _TENSORIZES in line:
        # CUDA's take 10 s of parsing, as long as a build may take.
        targets.load_intrinsics(resolved)
    if targets.is_gpu(resolved):
        cuda.require_compiler()
    record = records.parse(line)
    if record is None:
        return "invalid_schedule", "not a record"
    try:
        module = records.replay(record, _workload(definition)).mod
    except Exception as error:  # noqa: BLE001 - a trace may fail in any primitive
        return "invalid_schedule", faults.with_trace(error)
    module = s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    failure = compile_module(module, resolved, path)
    if failure:
        return failure
    shapes = [(tuple(int(size) for size in shape), str(dtype)) for _, dtype, shape in record.body[3]]
    return None, ("cuda" if targets.is_gpu(resolved) else "cpu", shapes)


@lru_cache(maxsize=64)
def _workload(definition: str) -> Any:
    return records.workload_of(json.loads(Path(definition).read_text(encoding="utf-8")))


def compile_module(module: Any, target: Any, path: str) -> tuple[str, str] | None:
    """Build a module of one function into the shared library ``path``.

    Returns None, or ``(TrialError value, message)``.
    """

    def make() -> None:
        with target:
            built = tvm.tirx.build(kernels.finish(module, target), target=target, pipeline=kernels.pipeline(target))
            built.export_library(path, fcompile=CANDIDATES.linker(target))

    try:
        compiling.build(RELEASE, make, assertions=False)
    except Exception as error:  # noqa: BLE001 - a candidate may fail in any pass of TVM
        return "build_error", faults.with_trace(error)
    return None


def _build_product(tensors: Sequence[Any], width: int) -> tuple[Any, str]:
    schedule = s_tir.Schedule(te.create_prim_func(list(tensors)))
    i, j, k = schedule.get_loops(schedule.get_sblock("product"))
    outer, inner = schedule.split(j, [None, width])
    schedule.reorder(i, outer, k, inner)
    schedule.vectorize(inner)
    target = tvm.target.Target({"kind": "llvm", "mcpu": native_cpu(tvm)})
    return tvm.tirx.build(schedule.mod, target=target), "main"


CANDIDATES = candidates.Candidates(RELEASE, _build_product)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "build": build,
    "calibrate": CANDIDATES.calibrate,
    "measure": CANDIDATES.measure,
}
