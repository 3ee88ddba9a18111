"""Products of groups of narrow numbers, added up in 32 bits by one instruction: ``vdpbf16ps`` and ``vpdpbusd``.

TVM 0.27 has no schedules for these instructions. Here numbers are stored as unsigned integers, and a group of
neighbours along the summed axis as uint32, the first one in the lowest bits. Tensor expressions sum an operator of our
own, the products of two groups, so any schedule of a sum applies. After scheduling, ``use_instructions`` replaces each
addition of it by the instruction. On targets without it, the operator is lowered to plain arithmetic, which differs in
the order of additions only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.target import codegen

from tuner.engines.relax import loops

GROUP = "uint32"
_WIDTHS = (4, 8, 16)
"""Vector widths for which the instructions exist."""
_WIDER = (32, 64)
"""Wider vectors, which MetaSchedule proposes; split in halves."""
_LEVEL = 10
"""TVM's default priority of a registration."""
_PURE = 1
"""``tvm.tirx.CallEffectKind.Pure``."""
_FUNCTION = """
declare <{n} x {sum}> @{instruction}.{bits}(<{n} x {sum}>, <{m} x {number}>, <{m} x {number}>)
define internal <{n} x {sum}> @{symbol}(<{n} x {sum}> %sum, <{n} x i32> %left, <{n} x i32> %right) alwaysinline {{
  %a = bitcast <{n} x i32> %left to <{m} x {number}>
  %b = bitcast <{n} x i32> %right to <{m} x {number}>
  %r = call <{n} x {sum}> @{instruction}.{bits}(<{n} x {sum}> %sum, <{m} x {number}> %a, <{m} x {number}> %b)
  ret <{n} x {sum}> %r
}}
"""
_HALVES = """
define internal <{n} x {sum}> @{symbol}(<{n} x {sum}> %sum, <{n} x i32> %left, <{n} x i32> %right) alwaysinline {{
  %s0 = shufflevector <{n} x {sum}> %sum, <{n} x {sum}> poison, <{h} x i32> <{low}>
  %s1 = shufflevector <{n} x {sum}> %sum, <{n} x {sum}> poison, <{h} x i32> <{high}>
  %a0 = shufflevector <{n} x i32> %left, <{n} x i32> poison, <{h} x i32> <{low}>
  %a1 = shufflevector <{n} x i32> %left, <{n} x i32> poison, <{h} x i32> <{high}>
  %b0 = shufflevector <{n} x i32> %right, <{n} x i32> poison, <{h} x i32> <{low}>
  %b1 = shufflevector <{n} x i32> %right, <{n} x i32> poison, <{h} x i32> <{high}>
  %r0 = call <{h} x {sum}> @{half}(<{h} x {sum}> %s0, <{h} x i32> %a0, <{h} x i32> %b0)
  %r1 = call <{h} x {sum}> @{half}(<{h} x {sum}> %s1, <{h} x i32> %a1, <{h} x i32> %b1)
  %r = shufflevector <{h} x {sum}> %r0, <{h} x {sum}> %r1, <{n} x i32> <{low}, {high}>
  ret <{n} x {sum}> %r
}}
"""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Numbers of which one instruction multiplies groups, and its names in TVM and LLVM."""

    text: str
    name: str
    """Name of the product in TVM and of functions of LLVM."""
    group: int
    """Numbers in 32 bits."""
    stored: str
    sums: str
    """Dtypes of a stored number and of sums."""
    features: tuple[str, ...]
    """CPU features of the instruction."""
    instruction: str
    """LLVM's name, without the width in bits."""
    types: tuple[str, str]
    """LLVM's types of a number and of a sum."""
    split: Callable[[Any, Any, str], list[tuple[Any, Any]]]
    """Returns the factors in two groups in a dtype, that of sums or of a vector of these."""
    speed: Callable[[str], float]
    """Returns the estimated throughput of products on a CPU of LLVM's, relative to float32."""

    @property
    def product(self) -> str:
        return f"tirx.tunesmith_{self.name}"

    @property
    def added(self) -> str:
        return f"{self.product}_added"

    def is_available(self, target: Any) -> bool:
        """Return whether a ``tvm.target.Target`` has the instruction."""
        return target.kind.name == "llvm" and bool(codegen.target_has_features(list(self.features), target))

    def symbol(self, lanes: int) -> str:
        """Return the name of the LLVM function for vectors of so many lanes."""
        return f"tunesmith_{self.name}_{lanes}"


def _pairs(left: Any, right: Any, dtype: str) -> list[tuple[Any, Any]]:
    upper, sixteen = (tirx.const(each, str(left.ty)) for each in (0xFFFF0000, 16))
    low, high = ([tirx.reinterpret(dtype, bits) for bits in (each << sixteen, each & upper)] for each in (left, right))
    return list(zip(low, high, strict=True))


def _quadruples(left: Any, right: Any, dtype: str) -> list[tuple[Any, Any]]:
    def shift(bits: int) -> Any:
        return tirx.const(bits, dtype)

    unsigned, signed = (tirx.reinterpret(dtype, each) for each in (left, right))
    places = range(0, 32, 8)
    return [(unsigned >> shift(at) & shift(255), signed << shift(24 - at) >> shift(24)) for at in places]


BFLOAT16 = Numbers(
    text="bfloat16 numbers",
    name="product",
    group=2,
    stored="uint16",
    sums="float32",
    features=("avx512bf16", "avx512vl"),
    instruction="llvm.x86.avx512bf16.dpbf16ps",
    types=("bfloat", "float"),
    split=_pairs,
    # 2 was measured on a Zen 4 (docs/decisions/0088-bf16-on-relax.md). On an Emerald Rapids, builds of relay, which had
    # bf16 then, were not faster than in float32 (0083-narrow-runtimes.md).
    speed=lambda cpu: 2.0 if cpu.startswith("znver") else 1.0,
)
BYTES = Numbers(
    text="bytes",
    name="byte_product",
    group=4,
    stored="uint8",
    sums="int32",
    features=("avx512vnni", "avx512vl"),
    instruction="llvm.x86.avx512.vpdpbusd",
    types=("i8", "i32"),
    split=_quadruples,
    speed=lambda _cpu: 4.0,
)
"""Unsigned bytes by signed ones."""
ALL = (BFLOAT16, BYTES)


def matrix_product(numbers: Numbers, data: Any, weights: Any) -> Any:
    """Multiply numbers (…, rows, depth) by groups (groups, columns), or by (…, groups, columns)."""
    place = te.reduce_axis((0, weights.shape[-2]), "group")

    def summed_up(*at: Any) -> Any:
        batch = at[:-2] if len(weights.shape) > 2 else ()
        left = _group(numbers, lambda place: data[(*at[:-1], place)], place)
        return te.sum(_product(numbers, left, weights[(*batch, place, at[-1])]), axis=[place])

    return te.compute((*data.shape[:-1], weights.shape[-1]), summed_up, name="products")


def convolution(
    numbers: Numbers,
    data: Any,
    weights: Any,
    border: Any,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Any:
    """Convolve an image (batch, height, width, channels) with groups (taps, taps, groups, filters).

    ``padding`` is that of the top, left, bottom and right, by ``border``, a tensor of one number, or 0 if it is
    None. Channels are padded to whole groups.
    """
    batch, height, width, channels = data.shape
    high, wide, groups, filters = weights.shape
    top, left, bottom, right = padding
    (down, across), (tall, broad) = strides, dilation
    rows = (height + top + bottom - (high - 1) * tall - 1) // down + 1
    columns = (width + left + right - (wide - 1) * broad - 1) // across + 1
    if any(int(each) for each in (*padding, channels % numbers.group)):
        data = _padded(numbers, data, groups * numbers.group, padding, border)
    y, x = te.reduce_axis((0, high), "y"), te.reduce_axis((0, wide), "x")
    place = te.reduce_axis((0, groups), "group")

    def summed_up(n: Any, i: Any, j: Any, c: Any) -> Any:
        at = (n, i * down + y * tall, j * across + x * broad)
        group = _group(numbers, lambda place: data[(*at, place)], place)
        return te.sum(_product(numbers, group, weights[y, x, place, c]), axis=[y, x, place])

    return te.compute((batch, rows, columns, filters), summed_up, name="products")


def _padded(numbers: Numbers, data: Any, channels: Any, padding: Sequence[int], border: Any) -> Any:
    """Return an image of so many channels, with ``border`` around it."""
    batch, height, width, known = data.shape
    top, left, bottom, right = padding
    outside = tirx.const(0, numbers.stored) if border is None else border[0]

    def number(n: Any, y: Any, x: Any, c: Any) -> Any:
        inside = tirx.all(y >= top, y < height + top, x >= left, x < width + left)
        found = data[n, y - top, x - left, c]
        found = found if int(known) == int(channels) else before(numbers, known, c, found)
        return tirx.if_then_else(inside, found, outside)

    return te.compute((batch, height + top + bottom, width + left + right, channels), number, name="padded")


def grouped(numbers: Numbers, data: Any) -> Any:
    """Return the groups (…, groups, columns) of numbers (…, depth, columns), padded with zeros to whole groups."""
    *outer, depth, columns = data.shape
    groups = (int(depth) + numbers.group - 1) // numbers.group

    def group(*place: Any) -> Any:
        *batch, at, column = place

        def number(row: Any) -> Any:
            found = data[(*batch, row, column)]
            return found if int(depth) % numbers.group == 0 else before(numbers, depth, row, found)

        return _group(numbers, number, at)

    return te.compute((*outer, groups, columns), group, name="packed")


def before(numbers: Numbers, end: Any, place: Any, number: Any) -> Any:
    """Return ``number`` at places before ``end``, and 0 elsewhere."""
    return tirx.if_then_else(place < end, number, tirx.const(0, numbers.stored))


def _group(numbers: Numbers, number: Callable[[Any], Any], group: Any) -> Any:
    """Return a group of the numbers that a function returns for their places."""
    first = number(numbers.group * group).astype(GROUP)
    for place, shift in list(enumerate(_shifts(numbers)))[1:]:
        first = first | number(numbers.group * group + place).astype(GROUP) << tirx.const(shift, GROUP)
    return first


def _shifts(numbers: Numbers) -> range:
    return range(0, 32, 32 // numbers.group)


def _product(numbers: Numbers, left: Any, right: Any) -> Any:
    return _call(numbers.product, numbers.sums, left, right)


def _call(name: str, dtype: str, *arguments: Any) -> Any:
    return tvm.ir.Call(tvm.ir.Op.get(name), list(arguments), ret_ty=tvm.ir.PrimType(dtype))


def use_instructions(module: Any, target: Any) -> Any:
    """Return an ``IRModule`` in which each addition of a product is one instruction, if the target has it."""
    for numbers in ALL:
        found = {variable: each for variable, each in module.functions_items() if _multiplies(numbers, each)}
        if found and numbers.is_available(target):
            lowered = loops.lower(tvm.IRModule(found))
            for variable in found:
                module[variable] = _with_instruction(numbers, lowered[variable])
    return module


def _multiplies(numbers: Numbers, function: Any) -> bool:
    found = []
    if isinstance(function, tirx.PrimFunc):
        tvm_ffi.structural_walk(function.body, (tvm.ir.Call, lambda call: found.append(_is_product(numbers, call))))
    return any(found)


def _with_instruction(numbers: Numbers, function: Any) -> Any:
    def store(node: Any, _mutator: Any) -> Any:
        sums = node.value
        if not isinstance(sums, tirx.Add):
            return node
        for total, product in ((sums.a, sums.b), (sums.b, sums.a)):
            if _is_product(numbers, product):
                added = _call(numbers.added, numbers.sums, total, *product.args)
                return tirx.BufferStore(node.buffer, added, node.indices)
        return node

    body = tvm_ffi.structural_mutate(function.body, [(tirx.BufferStore, store)])
    functions = tvm.ir.StringImm(_functions(numbers))
    return function.with_body(tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", functions, body))


@cache
def _functions(numbers: Numbers) -> str:
    """Return LLVM IR that defines a function of the instruction for each vector width."""
    number, total = numbers.types
    found = [
        _FUNCTION.format(
            n=n, m=numbers.group * n, bits=32 * n, symbol=numbers.symbol(n), instruction=numbers.instruction,
            number=number, sum=total,
        )
        for n in _WIDTHS
    ]  # fmt: skip
    for n in _WIDER:
        h = n // 2
        low, high = (", ".join(f"i32 {place}" for place in range(start, start + h)) for start in (0, h))
        names = {"symbol": numbers.symbol(n), "half": numbers.symbol(h)}
        found.append(_HALVES.format(n=n, h=h, low=low, high=high, sum=total, **names))
    return "".join(found)


def spelled_out(module: Any) -> Any:
    """Return an ``IRModule`` with products in plain arithmetic, so that TVM can count operations.

    It cannot count expressions with names for parts of them, so that these parts are left out.
    """

    def written(call: Any, mutator: Any) -> Any:
        mutated = mutator.default_mutate(call)
        numbers = next((each for each in ALL if _is_product(each, mutated)), None)
        return _multiplied(numbers, mutated) if numbers else mutated

    rules = [(tvm.ir.Call, written), (tirx.Let, lambda let, mutator: mutator.default_mutate(let).body)]
    functions = {
        variable: each.with_body(tvm_ffi.structural_mutate(each.body, rules))
        for variable, each in module.functions_items()
    }
    return tvm.IRModule(functions)


def _is_product(numbers: Numbers, node: Any) -> bool:
    return isinstance(node, tvm.ir.Call) and node.op.same_as(tvm.ir.Op.get(numbers.product))


def _multiplied(numbers: Numbers, call: Any) -> Any:
    """Lower a product to plain arithmetic."""
    left, right = call.args
    first, *others = (a * b for a, b in numbers.split(left, right, str(call.ty)))
    return sum(others, first)


def _multiplied_and_added(numbers: Numbers, call: Any) -> Any:
    """Lower the sum of a number and a product."""
    lanes = int(tvm.DataType(str(call.ty)).lanes)
    if lanes in (*_WIDTHS, *_WIDER):
        return tirx.call_extern(str(call.ty), numbers.symbol(lanes), *call.args)
    total, *groups = call.args
    return total + _multiplied(numbers, _call(numbers.product, str(call.ty), *groups))


def _register(numbers: Numbers) -> None:
    rules: list[tuple[str, Callable[..., Any], int]] = [
        (numbers.product, _multiplied, 2),
        (numbers.added, _multiplied_and_added, 3),
    ]
    for name, lowered, count in rules:
        tvm_ffi.get_global_func("ir.RegisterOp")(name, f"products of {numbers.text}, of {count} arguments")
        for attribute, value in (("TCallEffectKind", _PURE), ("TVectorizable", True), ("TScriptPrinterName", name[5:])):
            tvm.ir.register_op_attr(name, attribute, value)
        tvm_ffi.get_global_func("tirx.RegisterOpLowerIntrinsic")(name, partial(lowered, numbers), "llvm", _LEVEL)


for _numbers in ALL:
    _register(_numbers)
