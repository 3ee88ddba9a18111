"""A kernel that is always the same, timed beside candidates: when it takes longer, so did they."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import tvm
from tvm import te

from tuner.engines.relay import targets

_SIZE = 128
"""Of three square matrices of float32, 64 KiB each: in the second-level cache. One product takes 0.1 to 0.4 ms."""
_REPEATS = 5


def calibrate() -> float:
    """Seconds of one matrix product on one thread, the least of a few. Built at the first call, once a process."""
    evaluator, arrays = _kernel()
    return min(float(cost) for cost in evaluator(*arrays).results)


@lru_cache(maxsize=1)
def _kernel() -> tuple[Any, list[Any]]:
    size = _SIZE
    left, right = (te.placeholder((size, size), name=name) for name in ("left", "right"))
    k = te.reduce_axis((0, size), name="k")
    product = te.compute((size, size), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="product")
    schedule = te.create_schedule(product.op)
    i, j = product.op.axis
    outer, inner = schedule[product].split(j, factor=16)
    schedule[product].reorder(i, outer, k, inner)
    schedule[product].vectorize(inner)
    target = tvm.target.Target(f"llvm -mcpu={targets.native_cpu()}")
    library = tvm.build(schedule, [left, right, product], target=target, name="calibrate")
    arrays = [tvm.nd.array(np.full((size, size), 0.5, dtype="float32")) for _ in range(3)]
    evaluator = library.time_evaluator("calibrate", tvm.cpu(0), number=1, repeat=_REPEATS, min_repeat_ms=0)
    return evaluator, arrays
