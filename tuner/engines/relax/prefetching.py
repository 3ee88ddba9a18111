"""Prefetches of weights in tensor functions, see ``tuner.engines.runtime.prefetching``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import detect_linear_equation

from tuner.engines.relax import loops
from tuner.engines.relax.release import RELEASE
from tuner.engines.runtime import prefetching
from tuner.engines.runtime.prefetching import Prefetching, Walks


def apply(module: Any, target: Any) -> Any:
    """Return an ``IRModule`` whose scheduled functions are lowered to loops over flat buffers, with prefetches."""
    if not prefetching.pays(target):
        return module
    lowered = loops.lower(module)
    for variable, function in lowered.functions_items():
        if isinstance(function, tirx.PrimFunc):
            lowered[variable] = _PREFETCHING.add(function)
    return lowered


def _transform(body: Any, enter: Callable[[Any], None], leave: Callable[[Any], Any]) -> Any:
    def loop(node: Any, mutator: Any) -> Any:
        enter(node)
        mutated = mutator.default_mutate(node)
        return leave(mutated) or mutated

    def store(node: Any, _mutator: Any) -> Any:
        enter(node)
        return node

    return tvm_ffi.structural_mutate(body, [(tirx.For, loop), (tirx.BufferStore, store)])


def _substitute(expression: Any, values: dict[Any, Any]) -> Any:
    return tvm_ffi.structural_map(expression, (tirx.Var, lambda variable: values.get(variable, variable)))


def _call(load: Any, index: Any, *arguments: int) -> Any:
    address = tirx.address_of(tirx.BufferLoad(load.source, [index]))
    return tirx.call_llvm_intrin("void", "llvm.prefetch", address, *(tirx.const(each, "int32") for each in arguments))


def _given(function: Any) -> dict[Any, Any]:
    """Return the shapes of the flat buffers that lowering declares for those of the parameters."""
    found: dict[Any, Any] = {}

    def see(node: Any) -> None:
        data = node.data
        if isinstance(data, tvm.ir.Call) and any(data.args[0].same_as(each) for each in function.params):
            found[node.buffer] = node.buffer.shape

    tvm_ffi.structural_walk(function.body, (tirx.DeclBuffer, see))
    return found


def _value(expression: Any) -> int | None:
    simple = tvm.sym.Analyzer().simplify(expression)
    return int(simple) if isinstance(simple, tirx.IntImm) else None


_PREFETCHING = Prefetching(
    RELEASE,
    Walks(
        transform=_transform,
        visit=lambda expression, seen: tvm_ffi.structural_walk(expression, seen),
        substitute=_substitute,
        linear=detect_linear_equation,
        value=_value,
        given=_given,
        source=lambda node: node.source if isinstance(node, tvm.ir.TensorLoad) else None,
        dtype=lambda load: str(load.ty),
        call=_call,
    ),
)
