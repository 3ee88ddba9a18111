"""Concatenations, each part by itself.

TVM computes a concatenation as a choice between its parts for every element. LLVM makes masked loads of this, one for
each part, and a load whose lanes are all masked still takes hundreds of cycles where its address is not mapped.
"""

from __future__ import annotations

import re
from typing import Any

import tvm
from tvm import relax
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir

from tuner.engines.relax.graph import calls

_MOST_PARTS = 16
"""Parts up to which a concatenation is a choice, which operators before and after it can be fused with.

The size of such a function grows with the square of their number.
"""
_CONCAT = "relax.concat"


def legalizations() -> dict[str, Any]:
    """Return functions for ``LegalizeOps``, by operator: concatenations of many parts copy one after the other."""
    usual = tvm.ir.Op.get(_CONCAT).get_attr("FLegalize")

    def legalize(builder: Any, call: Any) -> Any:
        parts = call.args[0]
        while isinstance(parts, relax.Var) and builder.lookup_binding(parts) is not None:
            parts = builder.lookup_binding(parts)
        is_known = isinstance(parts, relax.Tuple) and all(
            calls.sizes(each) is not None for each in (call, *parts.fields)
        )
        if not is_known or len(parts.fields) <= _MOST_PARTS:
            return usual(builder, call)
        function = builder.add_func(_copies(parts.fields, int(call.attrs.axis or 0), call.ty), "concatenate")
        return relax.call_tir(function, parts, call.ty)

    return {_CONCAT: legalize}


def _copies(parts: Any, axis: int, result: Any) -> Any:
    """Return a tensor function that copies each part to its place in the result."""
    with IRBuilder() as builder, ir.prim_func(is_private=True, s_tir=True):
        ir.func_attr({"tirx.noalias": True})
        types = [*(part.ty for part in parts), result]
        *sources, joined = (ir.arg(f"tensor{place}", _buffer(each)) for place, each in enumerate(types))
        start = 0
        for source in sources:
            _copy(source, joined, axis % len(source.shape), start)
            start += int(source.shape[axis])
    return builder.get()


def _buffer(type_: Any) -> Any:
    return ir.buffer(list(type_.shape.values), str(type_.dtype))


def _copy(source: Any, joined: Any, axis: int, start: int) -> None:
    with ir.grid(*source.shape) as loops, ir.sblock("T_concat"):
        # The builder returns the variable of a single loop or axis without a list around it.
        read = ir.axis.remap("S" * len(source.shape), loops) if len(source.shape) > 1 else [ir.axis.remap("S", [loops])]
        written = [index + start if place == axis else index for place, index in enumerate(read)]
        ir.reads(source[tuple(read)])
        ir.writes(joined[tuple(written)])
        ir.buffer_store(joined, source[tuple(read)], written)


def borders(statement: Any) -> tuple[int, list[int]] | None:
    """Return the axis of a block that joins parts, and where all but the first begin; None if it joins none."""
    script = statement.body.script()
    found = {}
    for place, each in enumerate(statement.iter_vars):
        begins = {int(begin) for begin in re.findall(rf"\(T\.int64\((\d+)\) <= {each.var.name},", script)}
        inside = sorted(begin for begin in begins if 0 < begin < int(each.dom.extent))
        if inside:
            found[place] = inside
    if len(found) != 1 or len(*found.values()) >= _MOST_PARTS:
        return None
    return next(iter(found.items()))
