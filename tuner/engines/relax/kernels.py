"""Last passes over scheduled tensor functions, before TVM generates code."""

from __future__ import annotations

from typing import Any

import tvm

from tuner.engines.relax import prefetching, products


def finish(module: Any, target: Any) -> Any:
    """Return an ``IRModule`` whose functions use the target's instructions for narrow products and prefetch
    weights."""
    return prefetching.apply(products.use_instructions(module, target), target)


def finishing(target: Any) -> Any:
    """Return ``finish`` as a pass."""
    return tvm.transform.module_pass(lambda module, _context: finish(module, target), opt_level=0, name="FinishKernels")
