"""AVX512-VNNI byte products as LLVM 22 expects them, replacing TVM's.

``vpdpbusd`` multiplies 64 unsigned bytes by 64 signed ones and adds each four neighbouring products to one of 16 int32
sums: four times as many products as a float32 fused multiply-add of the same width. TVM 0.19 calls LLVM's intrinsic
with int32 vectors, as declared before LLVM 22; with LLVM 22 that aborts the process in an assertion. Our own templates
call it by an LLVM IR function, which TVM inlines, so that there is one for each width (``NUMBERS``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import tvm
from tvm import te
from tvm.target.codegen import llvm_cpu_has_features
from tvm.topi.x86 import tensor_intrin

from tuner.engines.relay.templates.narrow_numbers import Numbers

LANES, GROUP = 16, 4
"""Sums in a vector, and products added to each."""
_BYTES = LANES * GROUP
_INSTRUCTION = "llvm.x86.avx512.vpdpbusd.512"
_TAKES_BYTES = 22
"""First LLVM release whose intrinsic accepts vectors of bytes."""


_FEATURES = ("avx512f", "avx512vl", "avx512vnni")
_FUNCTION = """
declare <{n} x i32> @llvm.x86.avx512.vpdpbusd.{bits}(<{n} x i32>, {operand}, {operand})
define <{n} x i32> @tunesmith_vpdpbusd_{n}(<{n} x i32> %sum, <{n} x i32> %left, <{n} x i32> %right) {{
  %a = bitcast <{n} x i32> %left to {operand}
  %b = bitcast <{n} x i32> %right to {operand}
  %r = call <{n} x i32> @llvm.x86.avx512.vpdpbusd.{bits}(<{n} x i32> %sum, {operand} %a, {operand} %b)
  ret <{n} x i32> %r
}}
"""


def available(target: Any) -> bool:
    """Return whether a ``tvm.target.Target`` has the instruction."""
    return target.kind.name == "llvm" and bool(llvm_cpu_has_features(list(_FEATURES), target))


def function(lanes: int) -> str:
    """Return the LLVM IR for the pragma ``import_llvm`` of a loop that calls ``product``."""
    operand = f"<{GROUP * lanes} x i8>" if _takes_bytes() else f"<{lanes} x i32>"
    return _FUNCTION.format(n=lanes, bits=32 * lanes, operand=operand)


@lru_cache(maxsize=8)
def product(data_dtype: str, weights_dtype: str, lanes: int) -> Any:
    """Return the ``te.TensorIntrin`` of ``sum[i] += data[0] * weights[i, 0] + … + data[3] * weights[i, 3]``.

    ``i`` runs over ``lanes`` lanes; data is uint8, weights are int8.
    """
    data, weights = te.placeholder((GROUP,), data_dtype), te.placeholder((lanes, GROUP), weights_dtype)
    four = te.reduce_axis((0, GROUP))
    total = te.compute(
        (lanes,), lambda i: te.sum(data[four].astype("int32") * weights[i, four].astype("int32"), axis=four)
    )
    buffers = {
        data: tvm.tir.decl_buffer((GROUP,), data_dtype, offset_factor=1, strides=[1]),
        weights: tvm.tir.decl_buffer((lanes, GROUP), weights_dtype, offset_factor=1, strides=[GROUP, 1]),
        total: tvm.tir.decl_buffer((lanes,), "int32", offset_factor=1, strides=[1]),
    }

    def body(inputs: Any, outputs: Any) -> tuple[Any, Any, Any]:
        zero = tvm.tir.const(0, f"int32x{lanes}")
        kept = outputs[0].vload([0], f"int32x{lanes}")
        first, more = _called(inputs, lanes, zero), _called(inputs, lanes, kept)
        return outputs[0].vstore([0], first), outputs[0].vstore([0], zero), outputs[0].vstore([0], more)

    return te.decl_tensor_intrin(total.op, body, binds=buffers)


def _called(inputs: Any, lanes: int, total: Any) -> Any:
    four = tvm.tir.reinterpret("int32", inputs[0].vload([0], f"{inputs[0].dtype}x{GROUP}"))
    weights = tvm.tir.reinterpret(f"int32x{lanes}", inputs[1].vload([0, 0], f"{inputs[1].dtype}x{GROUP * lanes}"))
    return tvm.tir.call_extern(
        f"int32x{lanes}", f"tunesmith_vpdpbusd_{lanes}", total, tvm.tir.Broadcast(four, lanes), weights
    )


def _takes_bytes() -> bool:
    return int(tvm.target.codegen.llvm_version_major()) >= _TAKES_BYTES


NUMBERS = Numbers(
    name="bytes",
    group=GROUP,
    data="uint8",
    weights="int8",
    stored="uint8",
    value=lambda number: number.astype("int32"),
    bits=lambda number: number,
    available=available,
    function=function,
    product=product,
)


def install() -> None:
    """Replace TVM's function, which is looked up by this name whenever a schedule is made."""
    if _takes_bytes():
        tensor_intrin.dot_16x1x16_uint8_int8_int32_cascadelake = dot


def dot() -> Any:
    """Return the TensorIntrin of ``data`` uint8[4] times ``kernel`` int8[16, 4] into int32[16].

    The kernel is 64 contiguous bytes.
    """
    data = te.placeholder((GROUP,), dtype="uint8", name="data")
    kernel = te.placeholder((LANES, GROUP), dtype="int8", name="kernel")
    group = te.reduce_axis((0, GROUP), name="k")
    sums = te.compute(
        (LANES,),
        lambda lane: te.sum(data[group].astype("int32") * kernel[lane, group].astype("int32"), axis=group),
        name="C",
    )
    buffers = {
        data: tvm.tir.decl_buffer(data.shape, dtype="uint8", name="a_buffer", offset_factor=1, strides=[1]),
        kernel: tvm.tir.decl_buffer(
            kernel.shape, dtype="int8", name="b_buffer", offset_factor=1, strides=[te.var("ldw"), 1]
        ),
    }
    return te.decl_tensor_intrin(sums.op, _emit, binds=buffers, default_buffer_params={"offset_factor": 1})


def _emit(inputs: Any, outputs: Any) -> tuple[Any, Any, Any]:
    """Return three bodies: the sums alone, the initial zeros, and the sums added to the output."""
    return _added(inputs, outputs, _zeros()), _started(outputs), _added(inputs, outputs, outputs[0].vload([0], _SUMS))


_SUMS = f"int32x{LANES}"


def _zeros() -> Any:
    return tvm.tir.const(0, _SUMS)


def _started(outputs: Any) -> Any:
    builder = tvm.tir.ir_builder.create()
    builder.emit(outputs[0].vstore(0, _zeros()))
    return builder.get()


def _added(inputs: Any, outputs: Any, before: Any) -> Any:
    four = tvm.tir.call_intrin("int32", "tir.reinterpret", inputs[0].vload([0], f"uint8x{GROUP}"))
    everywhere = tvm.tir.call_intrin(f"int8x{_BYTES}", "tir.reinterpret", four.astype(_SUMS))
    kernel = inputs[1].vload([0, 0], f"int8x{_BYTES}")
    # The count before the operands says how many of them select the intrinsic's overload.
    count = tvm.tir.const(3, "uint32")
    product = tvm.tir.call_llvm_pure_intrin(_SUMS, _INSTRUCTION, count, before, everywhere, kernel)
    builder = tvm.tir.ir_builder.create()
    builder.emit(outputs[0].vstore(0, product))
    return builder.get()
