"""Products of pairs of bfloat16 numbers, added up in float32: AVX512-BF16's ``vdpbf16ps``.

TVM 0.27 has the dtype bfloat16 but not this instruction. Here a bfloat16 number is stored as uint16, and a pair of
neighbours along the summed axis as uint32, the first one in the low half. Tensor expressions sum an operator of our
own, the product of two pairs, so any schedule of a sum applies. After scheduling, ``use_instruction`` replaces each
addition of a product by the instruction. On targets without it, the operator is lowered to float32 arithmetic, which
differs in the order of additions only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.target import codegen

from tuner.engines.relax import loops

BITS, PAIR = "uint16", "uint32"
_SUM = "float32"
_PRODUCT, _ADDED = "tirx.tunesmith_product", "tirx.tunesmith_product_added"
_WIDTHS = (4, 8, 16)
"""Vector widths for which the instruction exists."""
_WIDER = (32, 64)
"""Wider vectors, which MetaSchedule proposes; split in halves."""
_FEATURES = ["avx512bf16", "avx512vl"]
_LEVEL = 10
"""TVM's default priority of a registration."""
_PURE = 1
"""``tvm.tirx.CallEffectKind.Pure``."""
_FUNCTION = """
declare <{n} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(<{n} x float>, <{m} x bfloat>, <{m} x bfloat>)
define internal <{n} x float> @{symbol}(<{n} x float> %sum, <{n} x i32> %left, <{n} x i32> %right) alwaysinline {{
  %a = bitcast <{n} x i32> %left to <{m} x bfloat>
  %b = bitcast <{n} x i32> %right to <{m} x bfloat>
  %r = call <{n} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(<{n} x float> %sum, <{m} x bfloat> %a, <{m} x bfloat> %b)
  ret <{n} x float> %r
}}
"""
_HALVES = """
define internal <{n} x float> @{symbol}(<{n} x float> %sum, <{n} x i32> %left, <{n} x i32> %right) alwaysinline {{
  %s0 = shufflevector <{n} x float> %sum, <{n} x float> poison, <{h} x i32> <{low}>
  %s1 = shufflevector <{n} x float> %sum, <{n} x float> poison, <{h} x i32> <{high}>
  %a0 = shufflevector <{n} x i32> %left, <{n} x i32> poison, <{h} x i32> <{low}>
  %a1 = shufflevector <{n} x i32> %left, <{n} x i32> poison, <{h} x i32> <{high}>
  %b0 = shufflevector <{n} x i32> %right, <{n} x i32> poison, <{h} x i32> <{low}>
  %b1 = shufflevector <{n} x i32> %right, <{n} x i32> poison, <{h} x i32> <{high}>
  %r0 = call <{h} x float> @{half}(<{h} x float> %s0, <{h} x i32> %a0, <{h} x i32> %b0)
  %r1 = call <{h} x float> @{half}(<{h} x float> %s1, <{h} x i32> %a1, <{h} x i32> %b1)
  %r = shufflevector <{h} x float> %r0, <{h} x float> %r1, <{n} x i32> <{low}, {high}>
  ret <{n} x float> %r
}}
"""


def is_available(target: Any) -> bool:
    """Return whether a ``tvm.target.Target`` has the instruction."""
    return target.kind.name == "llvm" and bool(codegen.target_has_features(_FEATURES, target))


def speed(target: Any) -> float:
    """Return the estimated throughput of products, relative to float32.

    2 was measured on a Zen 4 (docs/decisions/0088-bf16-on-relax.md). Builds of the relay engine for an Emerald Rapids
    were not faster in bf16 than in float32 (0083-narrow-runtimes.md).
    """
    return 2.0 if str(target.attrs.get("mcpu", "")).startswith("znver") else 1.0


def rounded(data: Any, *, is_even: bool = False) -> Any:
    """Round a float32 tensor to the nearest bfloat16, ties to even; ``is_even``: append a 0 if the last axis is odd."""
    *outer, last = data.shape

    def bits(*place: Any) -> Any:
        found = tirx.reinterpret(PAIR, data[place])
        odd = found >> _number(16) & _number(1)
        return (found + _number(0x7FFF) + odd >> _number(16)).astype(BITS)

    if not is_even or int(last) % 2 == 0:
        return te.compute(data.shape, bits, name="rounded")
    return te.compute((*outer, last + 1), lambda *place: _before(last, place[-1], bits(*place)), name="rounded")


def widened(data: Any) -> Any:
    """Return a tensor of bfloat16 numbers in float32."""
    return te.compute(
        data.shape, lambda *place: tirx.reinterpret(_SUM, data[place].astype(PAIR) << _number(16)), name="widened"
    )


def packed(data: Any) -> Any:
    """Return the pairs (…, depth / 2, columns) of bfloat16 numbers (…, depth, columns), padded to an even depth."""
    *outer, depth, columns = data.shape

    def pair(*place: Any) -> Any:
        *batch, at, column = place
        low, high = (data[(*batch, 2 * at + half, column)] for half in (0, 1))
        return _pair(low, high if int(depth) % 2 == 0 else _before(depth, 2 * at + 1, high))

    return te.compute((*outer, (depth + 1) // 2, columns), pair, name="packed")


def matrix_product(data: Any, weights: Any) -> Any:
    """Multiply bfloat16 numbers (…, rows, depth) by pairs (depth / 2, columns), or by (…, depth / 2, columns)."""
    place = te.reduce_axis((0, weights.shape[-2]), "pair")

    def summed_up(*at: Any) -> Any:
        batch = at[:-2] if len(weights.shape) > 2 else ()
        return te.sum(_product(_read(data, at[:-1], place), weights[(*batch, place, at[-1])]), axis=[place])

    return te.compute((*data.shape[:-1], weights.shape[-1]), summed_up, name="products")


def convolution(
    data: Any, weights: Any, *, strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Any:
    """Convolve an image (batch, height, width, channels) with pairs (taps, taps, channels / 2, filters).

    ``padding`` is that of the top, left, bottom and right. The number of channels is padded to an even one.
    """
    batch, height, width, channels = data.shape
    high, wide, pairs, filters = weights.shape
    top, left, bottom, right = padding
    (down, across), (tall, broad) = strides, dilation
    rows = (height + top + bottom - (high - 1) * tall - 1) // down + 1
    columns = (width + left + right - (wide - 1) * broad - 1) // across + 1
    is_padded = any(int(each) for each in (*padding, channels % 2))
    image: Any = _padded(data, pairs, padding) if is_padded else None
    y, x = te.reduce_axis((0, high), "y"), te.reduce_axis((0, wide), "x")
    place = te.reduce_axis((0, pairs), "pair")

    def summed_up(n: Any, i: Any, j: Any, c: Any) -> Any:
        at = (n, i * down + y * tall, j * across + x * broad)
        pair = image[(*at, place)] if is_padded else _read(data, at, place)
        return te.sum(_product(pair, weights[y, x, place, c]), axis=[y, x, place])

    return te.compute((batch, rows, columns, filters), summed_up, name="products")


def _padded(data: Any, pairs: Any, padding: Sequence[int]) -> Any:
    """Return the pairs of an image with zeros around it.

    The buffer holds pairs because LLVM keeps sums in memory, not in registers, if a function reads single numbers from
    a buffer that it allocates.
    """
    batch, height, width, channels = data.shape
    top, left, bottom, right = padding

    def pair(n: Any, y: Any, x: Any, p: Any) -> Any:
        at = (n, y - top, x - left)
        high = data[(*at, 2 * p + 1)]
        if int(channels) % 2:
            high = _before(channels, 2 * p + 1, high)
        inside = tirx.all(y >= top, y < height + top, x >= left, x < width + left)
        return tirx.if_then_else(inside, _pair(data[(*at, 2 * p)], high), _number(0))

    return te.compute((batch, height + top + bottom, width + left + right, pairs), pair, name="padded")


def _read(data: Any, place: Sequence[Any], pair: Any) -> Any:
    return _pair(data[(*place, 2 * pair)], data[(*place, 2 * pair + 1)])


def _pair(low: Any, high: Any) -> Any:
    return low.astype(PAIR) | high.astype(PAIR) << _number(16)


def _before(end: Any, place: Any, number: Any) -> Any:
    """Return ``number`` at places before ``end``, and 0 elsewhere."""
    return tirx.if_then_else(place < end, number, tirx.const(0, BITS))


def _number(value: int) -> Any:
    return tirx.const(value, PAIR)


def _product(left: Any, right: Any) -> Any:
    return _call(_PRODUCT, _SUM, left, right)


def _call(name: str, dtype: str, *arguments: Any) -> Any:
    return tvm.ir.Call(tvm.ir.Op.get(name), list(arguments), ret_ty=tvm.ir.PrimType(dtype))


def use_instruction(module: Any, target: Any) -> Any:
    """Return an ``IRModule`` in which each addition of a product is one instruction, if the target has it."""
    if not is_available(target):
        return module
    found = {variable: each for variable, each in module.functions_items() if _multiplies(each)}
    if found:
        lowered = loops.lower(tvm.IRModule(found))
        for variable in found:
            module[variable] = _with_instruction(lowered[variable])
    return module


def _multiplies(function: Any) -> bool:
    found = []
    if isinstance(function, tirx.PrimFunc):
        tvm_ffi.structural_walk(function.body, (tvm.ir.Call, lambda call: found.append(_is_product(call))))
    return any(found)


def _with_instruction(function: Any) -> Any:
    def store(node: Any, _mutator: Any) -> Any:
        sums = node.value
        if not isinstance(sums, tirx.Add):
            return node
        for before, product in ((sums.a, sums.b), (sums.b, sums.a)):
            if _is_product(product):
                added = _call(_ADDED, _SUM, before, *product.args)
                return tirx.BufferStore(node.buffer, added, node.indices)
        return node

    body = tvm_ffi.structural_mutate(function.body, [(tirx.BufferStore, store)])
    return function.with_body(
        tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", tvm.ir.StringImm(_functions()), body)
    )


@cache
def _functions() -> str:
    """Return LLVM IR that defines a function of the instruction for each vector width."""
    found = [_FUNCTION.format(n=n, m=2 * n, bits=32 * n, symbol=_symbol(n)) for n in _WIDTHS]
    for n in _WIDER:
        half = n // 2
        low, high = (", ".join(f"i32 {place}" for place in range(start, start + half)) for start in (0, half))
        found.append(_HALVES.format(n=n, h=half, low=low, high=high, symbol=_symbol(n), half=_symbol(half)))
    return "".join(found)


def spelled_out(module: Any) -> Any:
    """Return an ``IRModule`` with products in float32 arithmetic, so that TVM can count floating-point operations."""

    def written(call: Any, mutator: Any) -> Any:
        mutated = mutator.default_mutate(call)
        return _multiplied(mutated) if _is_product(mutated) else mutated

    functions = {
        variable: each.with_body(tvm_ffi.structural_mutate(each.body, [(tvm.ir.Call, written)]))
        for variable, each in module.functions_items()
    }
    return tvm.IRModule(functions)


def _is_product(node: Any) -> bool:
    return isinstance(node, tvm.ir.Call) and node.op.same_as(tvm.ir.Op.get(_PRODUCT))


def _symbol(lanes: int) -> str:
    return f"tunesmith_pairs_{lanes}"


def _lanes(call: Any) -> int:
    return int(tvm.DataType(str(call.ty)).lanes)


def _multiplied(call: Any) -> Any:
    """Lower a product to float32 arithmetic."""
    lanes = _lanes(call)
    wide = _SUM if lanes == 1 else f"{_SUM}x{lanes}"
    upper, sixteen = (tirx.const(each, str(call.args[0].ty)) for each in (0xFFFF0000, 16))
    (low, high), (other_low, other_high) = (
        [tirx.reinterpret(wide, bits) for bits in (pair << sixteen, pair & upper)] for pair in call.args
    )
    return low * other_low + high * other_high


def _multiplied_and_added(call: Any) -> Any:
    """Lower the sum of a number and a product."""
    lanes = _lanes(call)
    if lanes in (*_WIDTHS, *_WIDER):
        return tirx.call_extern(str(call.ty), _symbol(lanes), *call.args)
    before, *pairs = call.args
    return before + _multiplied(_call(_PRODUCT, str(call.ty), *pairs))


def _register() -> None:
    for name, lowered, count in ((_PRODUCT, _multiplied, 2), (_ADDED, _multiplied_and_added, 3)):
        tvm_ffi.get_global_func("ir.RegisterOp")(name, f"a product of pairs of bfloat16 numbers, of {count} arguments")
        for attribute, value in (("TCallEffectKind", _PURE), ("TVectorizable", True), ("TScriptPrinterName", name[5:])):
            tvm.ir.register_op_attr(name, attribute, value)
        tvm_ffi.get_global_func("tirx.RegisterOpLowerIntrinsic")(name, lowered, "llvm", _LEVEL)


_register()
