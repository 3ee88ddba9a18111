"""AVX512-VNNI's product of bytes, as LLVM 22 takes it, in place of TVM's.

``vpdpbusd`` multiplies 64 unsigned bytes by 64 signed ones and adds each four neighbouring products to one of 16 sums
in int32: four times as many products as a fused multiply-add of float32 of the same width. TVM 0.19 calls LLVM's
intrinsic with vectors of int32, as it was declared before LLVM 22; that ends the process in an assertion. The
schedules around it are TVM's (``topi.x86.conv2d_int8``, ``topi.x86.dense``).
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import te
from tvm.topi.x86 import tensor_intrin

LANES, GROUP = 16, 4
"""Sums in a vector, and products that go into each."""
_BYTES = LANES * GROUP
_INSTRUCTION = "llvm.x86.avx512.vpdpbusd.512"
_TAKES_BYTES = 22
"""LLVM's first release whose intrinsic takes vectors of bytes."""


def install() -> None:
    """TVM looks the function up by this name whenever it makes a schedule."""
    if tvm.target.codegen.llvm_version_major() >= _TAKES_BYTES:
        tensor_intrin.dot_16x1x16_uint8_int8_int32_cascadelake = dot


def dot() -> Any:
    """``data`` uint8[4] by ``kernel`` int8[16, 4] into int32[16], as a TensorIntrin; the kernel lies in 64 bytes."""
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
    """The sums alone, zeros to begin with, and the sums added to what is there."""
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
    # The number before the operands tells code generation how many of them decide which overload is called.
    count = tvm.tir.const(3, "uint32")
    product = tvm.tir.call_llvm_pure_intrin(_SUMS, _INSTRUCTION, count, before, everywhere, kernel)
    builder = tvm.tir.ir_builder.create()
    builder.emit(outputs[0].vstore(0, product))
    return builder.get()
