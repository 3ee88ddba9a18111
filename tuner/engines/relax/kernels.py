"""Last passes over scheduled tensor functions, before TVM generates code."""

from __future__ import annotations

from typing import Any

import tvm

from tuner.engines.relax import pairs, prefetching


def finish(module: Any, target: Any) -> Any:
    """Return an ``IRModule`` whose functions use the target's instruction for bfloat16 pairs and prefetch weights."""
    return prefetching.apply(pairs.use_instruction(module, target), target)


def finishing(target: Any) -> Any:
    """Return ``finish`` as a pass."""
    return tvm.transform.module_pass(lambda module, _context: finish(module, target), opt_level=0, name="FinishKernels")
