"""AVX512-VNNI byte products as LLVM 22 expects them, replacing TVM's.

``vpdpbusd`` multiplies 64 unsigned bytes by 64 signed ones and adds each four neighbouring products to one of 16 int32
sums: four times as many products as a float32 fused multiply-add of the same width. TVM 0.19 calls LLVM's intrinsic
with int32 vectors, as declared before LLVM 22; with LLVM 22 that aborts the process in an assertion. Our own templates
call it by an LLVM IR function, which TVM inlines, so that there is one for each width (``NUMBERS``).
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import te
from tvm.topi.x86 import tensor_intrin

from tuner.engines.relay.templates.narrow_numbers import Numbers

LANES, GROUP = 16, 4
"""Sums in a vector, and products added to each."""
_BYTES = LANES * GROUP
_TAKES_BYTES = 22
"""First LLVM release whose intrinsic accepts vectors of bytes."""


def _takes_bytes() -> bool:
    return int(tvm.target.codegen.llvm_version_major()) >= _TAKES_BYTES


NUMBERS = Numbers(
    name="bytes",
    group=GROUP,
    data="uint8",
    weights="int8",
    sums="int32",
    stored="uint8",
    value=lambda number: number.astype("int32"),
    bits=lambda number: number,
    features=("avx512f", "avx512vl", "avx512vnni"),
    instruction="llvm.x86.avx512.vpdpbusd",
    operand=lambda lanes: f"<{GROUP * lanes} x i8>" if _takes_bytes() else f"<{lanes} x i32>",
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
    product = tvm.tir.call_llvm_pure_intrin(_SUMS, f"{NUMBERS.instruction}.512", count, before, everywhere, kernel)
    builder = tvm.tir.ir_builder.create()
    builder.emit(outputs[0].vstore(0, product))
    return builder.get()
