"""Last passes over scheduled tensor functions, before TVM generates code."""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tuner.engines.relax import prefetching, targets
from tuner.engines.relax.graph import products
from tuner.engines.runtime.workspaces import MOST_STACK_BYTES, ON_STACK

_OF_TVM, _OURS = "default", "tunesmith"
"""Names of pipelines for ``tvm.tirx.build``: TVM's own, and the same with sums on the stack."""


def finish(module: Any, target: Any) -> Any:
    """Return an ``IRModule`` whose functions use the target's instructions for narrow products and prefetch
    weights."""
    return prefetching.apply(products.use_instructions(module, target), target)


def finishing(target: Any) -> Any:
    """Return ``finish`` as a pass."""
    return tvm.transform.module_pass(lambda module, _context: finish(module, target), opt_level=0, name="FinishKernels")


def pipeline(target: Any) -> str:
    """Return the name of the pipeline for ``tvm.tirx.build``."""
    # For a GPU, the memory that a function of the host asks for is the device's.
    return _OF_TVM if targets.is_gpu(target) else _OURS


def _with_sums_on_stack() -> tuple[Any, Any, Any]:
    passes, finish_host, finish_device = tirx.get_tir_pipeline(_OF_TVM)
    return passes, lambda: tvm.transform.Sequential([_keep_on_stack, finish_host()]), finish_device


@tirx.transform.prim_func_pass(opt_level=0)
def _keep_on_stack(function: Any, _module: Any, _context: Any) -> Any:
    """Leave small memory on the stack, where LLVM turns it into registers.

    TVM asks its runtime for any memory inside of a loop: in a parallel one for every tile, whose sums LLVM then writes
    to that memory, in each iteration if the loop has a prefetch.
    """

    def annotated(node: Any, _mutator: Any) -> Any:
        if not all(isinstance(size, tirx.IntImm) for size in node.buffer.shape):
            return node
        size = math.prod(map(int, node.buffer.shape)) * tvm.DataType(str(node.buffer.dtype)).itemsize
        if size > MOST_STACK_BYTES:
            return node
        return tirx.AllocBuffer(node.buffer, {**node.annotations, ON_STACK: tirx.const(1, "int32")}, node.span)

    return function.with_body(tvm_ffi.structural_mutate(function.body, [(tirx.AllocBuffer, annotated)]))


tirx.register_tir_pipeline(_OURS, _with_sums_on_stack)

# Otherwise TVM makes a plain loop of a vectorized one that rounds, and LLVM vectors of half the width or none.
tvm.ir.register_op_attr("tirx.nearbyint", "TVectorizable", True)
