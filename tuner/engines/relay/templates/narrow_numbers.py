"""Numbers that one instruction multiplies in groups, adding each group's products to a 32-bit sum of a lane.

An LLVM IR function calls the instruction, for each of its widths; it takes groups as 32-bit integers. TVM inlines
whatever the pragma ``import_llvm`` imports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tvm import te, tir
from tvm.target.codegen import llvm_cpu_has_features

_SUMS = {"float32": "float", "int32": "i32"}
"""LLVM's names of the dtypes of sums."""
_FUNCTION = """
declare <{n} x {sum}> @{instruction}.{bits}(<{n} x {sum}>, {operand}, {operand})
define <{n} x {sum}> @{symbol}(<{n} x {sum}> %sum, <{n} x i32> %left, <{n} x i32> %right) {{
  %a = bitcast <{n} x i32> %left to {operand}
  %b = bitcast <{n} x i32> %right to {operand}
  %r = call <{n} x {sum}> @{instruction}.{bits}(<{n} x {sum}> %sum, {operand} %a, {operand} %b)
  ret <{n} x {sum}> %r
}}
"""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    name: str
    """Part of the names of templates."""
    group: int
    """Numbers whose products one lane adds up; together they have 32 bits."""
    data: str
    weights: str
    sums: str
    stored: str
    """Dtypes: of both operands, of sums, and in which a function may keep data."""
    value: Callable[[Any], Any]
    """Returns a number of data or weights in the dtype of sums."""
    bits: Callable[[Any], Any]
    """Returns a number as a function may keep it."""
    features: tuple[str, ...]
    """CPU features of the instruction."""
    instruction: str
    """LLVM's name, without the width in bits."""
    operand: Callable[[int], str]
    """Returns LLVM's type of an operand with so many lanes."""

    def are(self, data: Any, weights: Any) -> bool:
        """Return whether tensors, or types of tensors, hold these numbers."""
        return (data.dtype, weights.dtype) == (self.data, self.weights)

    def available(self, target: Any) -> bool:
        """Return whether a ``tvm.target.Target`` has the instruction."""
        return target.kind.name == "llvm" and bool(llvm_cpu_has_features(list(self.features), target))

    def function(self, lanes: int) -> str:
        """Return the LLVM IR for the pragma ``import_llvm`` of a loop that calls ``product``."""
        return _FUNCTION.format(
            n=lanes, bits=32 * lanes, sum=_SUMS[self.sums], instruction=self.instruction, symbol=self._symbol(lanes),
            operand=self.operand(lanes),
        )  # fmt: skip

    @lru_cache(maxsize=8)  # noqa: B019 - there are two of these objects, which live as long as the process
    def product(self, data_dtype: str, weights_dtype: str, lanes: int) -> Any:
        """Return the ``te.TensorIntrin`` of ``sum[i] += data[0] * weights[i, 0] + data[1] * weights[i, 1] + …``.

        ``i`` runs over ``lanes`` lanes; the dtypes are those of operands, or ``stored``.
        """
        data, weights = te.placeholder((self.group,), data_dtype), te.placeholder((lanes, self.group), weights_dtype)
        place = te.reduce_axis((0, self.group))
        total = te.compute(
            (lanes,), lambda i: te.sum(self.value(data[place]) * self.value(weights[i, place]), axis=place)
        )
        buffers = {
            data: tir.decl_buffer((self.group,), data_dtype, offset_factor=1, strides=[1]),
            weights: tir.decl_buffer((lanes, self.group), weights_dtype, offset_factor=1, strides=[self.group, 1]),
            total: tir.decl_buffer((lanes,), self.sums, offset_factor=1, strides=[1]),
        }

        def body(inputs: Any, outputs: Any) -> tuple[Any, Any, Any]:
            zero = tir.const(0, f"{self.sums}x{lanes}")
            kept = outputs[0].vload([0], f"{self.sums}x{lanes}")
            first, more = self._added(inputs, lanes, zero), self._added(inputs, lanes, kept)
            return outputs[0].vstore([0], first), outputs[0].vstore([0], zero), outputs[0].vstore([0], more)

        return te.decl_tensor_intrin(total.op, body, binds=buffers)

    def _added(self, inputs: Any, lanes: int, total: Any) -> Any:
        group = tir.reinterpret("int32", inputs[0].vload([0], f"{inputs[0].dtype}x{self.group}"))
        weights = inputs[1].vload([0, 0], f"{inputs[1].dtype}x{self.group * lanes}")
        return tir.call_extern(
            f"{self.sums}x{lanes}", self._symbol(lanes), total, tir.Broadcast(group, lanes),
            tir.reinterpret(f"int32x{lanes}", weights),
        )  # fmt: skip

    def _symbol(self, lanes: int) -> str:
        return f"tunesmith_{self.instruction.rpartition('.')[2]}_{lanes}"
