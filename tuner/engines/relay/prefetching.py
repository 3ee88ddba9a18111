"""Prefetches of weights in tensor functions, see ``tuner.engines.runtime.prefetching``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tvm
from tvm import tir

from tuner.engines.relay.release import RELEASE
from tuner.engines.runtime import prefetching
from tuner.engines.runtime.prefetching import Prefetching, Walks
from tuner.engines.runtime.workspaces import MOST_STACK_BYTES, ON_STACK

_MARK = "prefetches"
_BETWEEN, _LAST = 1, 3
"""Where TVM calls passes of ours: once buffers are flat, and after all of its own."""


def options(target: Any) -> dict[str, Any]:
    """Return the options of a ``PassContext`` in which functions for this target prefetch weights, if that pays.

    Sums of such functions stay on the stack: LLVM of this release keeps those on the heap in memory, not in registers,
    as soon as the loop has a prefetch.
    """
    if not prefetching.pays(target):
        return {}
    return {"tir.add_lower_pass": [[_BETWEEN, _insert], [_LAST, _keep_on_stack]]}


def _call(load: Any, index: Any, *arguments: int) -> Any:
    address = tir.address_of(tir.BufferLoad(load.buffer, [index]))
    return tir.call_llvm_intrin("void", "llvm.prefetch", tir.const(1 + len(arguments), "uint32"), address, *arguments)


def _transform(body: Any, enter: Callable[[Any], None], leave: Callable[[Any], Any]) -> Any:
    return tir.stmt_functor.ir_transform(body, enter, leave, ["tir.For", "tir.BufferStore"])


def _value(expression: Any) -> int | None:
    simple = tvm.arith.Analyzer().simplify(expression)
    return int(simple) if isinstance(simple, tir.IntImm) else None


_PREFETCHING = Prefetching(
    RELEASE,
    Walks(
        transform=_transform,
        visit=tir.stmt_functor.post_order_visit,
        substitute=tir.stmt_functor.substitute,
        linear=tvm.arith.detect_linear_equation,
        value=_value,
        given=lambda function: {each.data: each.shape for each in function.buffer_map.values()},
        source=lambda node: node.buffer.data if isinstance(node, tir.BufferLoad) else None,
        dtype=lambda load: str(load.dtype),
        call=_call,
    ),
)


@tir.transform.prim_func_pass(opt_level=0)
def _insert(function: Any, _module: Any, _context: Any) -> Any:
    added = _PREFETCHING.add(function)
    return function if added.body.same_as(function.body) else added.with_attr(_MARK, True)


@tir.transform.prim_func_pass(opt_level=0)
def _keep_on_stack(function: Any, _module: Any, _context: Any) -> Any:
    if _MARK not in function.attrs:
        return function

    def annotated(node: Any) -> Any:
        if not all(isinstance(size, tir.IntImm) for size in node.extents):
            return None
        if math.prod(map(int, node.extents)) * tvm.DataType(node.dtype).itemsize() > MOST_STACK_BYTES:
            return None
        annotations = {**node.annotations, ON_STACK: True}
        return tir.Allocate(node.buffer_var, node.dtype, node.extents, node.condition, node.body, annotations)

    body = tir.stmt_functor.ir_transform(function.body, None, annotated, ["tir.Allocate"])
    return function.with_body(body)
