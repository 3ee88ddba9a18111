"""Products of pairs of bfloat16 numbers, added up in float32: AVX512-BF16's ``vdpbf16ps``.

Each lane of the instruction adds two products to a float32: of a pair of input channels, which every lane takes, and of
the pair's weights for the lane's output channel. The pair is 32 bits in memory, which loads into all lanes at once.

TVM 0.19 takes bfloat16 out of a program before code is generated: it computes in float32, and keeps in float32 what a
program allocates. So what is padded is kept as uint16, and what calls the instruction is a function in LLVM's language,
which takes pairs as 32-bit integers; TVM inlines whatever ``import_llvm`` brings in.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tvm import te, tir
from tvm.target.codegen import llvm_cpu_has_features

DTYPE = "bfloat16"
PAIR = 2
"""Numbers whose products one lane adds up."""
WIDE, NARROW = 16, 8
"""float32 lanes of the instruction's two forms; Zen 4 starts one wide a cycle, or two narrow ones."""
_FEATURES = ("avx512bf16", "avx512vl")
_FUNCTION = """
declare <{n} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(<{n} x float>, <{both} x bfloat>, <{both} x bfloat>)
define <{n} x float> @tunesmith_dpbf16ps_{n}(<{n} x float> %sum, <{n} x i32> %left, <{n} x i32> %right) {{
  %a = bitcast <{n} x i32> %left to <{both} x bfloat>
  %b = bitcast <{n} x i32> %right to <{both} x bfloat>
  %r = call <{n} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(
      <{n} x float> %sum, <{both} x bfloat> %a, <{both} x bfloat> %b)
  ret <{n} x float> %r
}}
"""


def available(target: Any) -> bool:
    """Whether a ``tvm.target.Target`` has the instruction."""
    return target.kind.name == "llvm" and bool(llvm_cpu_has_features(list(_FEATURES), target))


def function(lanes: int) -> str:
    """LLVM's text for the pragma ``import_llvm`` of whatever calls ``product``."""
    return _FUNCTION.format(n=lanes, both=PAIR * lanes, bits=32 * lanes)


def lanes_of(block: int) -> int:
    """How wide the instruction is for a block of output channels, a multiple of 8."""
    return WIDE if block % WIDE == 0 else NARROW


def value(number: Any) -> Any:
    """A bfloat16, or the uint16 that holds one, as float32."""
    if number.dtype == DTYPE:
        return number.astype("float32")
    return tir.reinterpret("float32", number.astype("uint32") << tir.const(16, "uint32"))


def bits(number: Any) -> Any:
    """A bfloat16 from memory as uint16."""
    return tir.reinterpret("uint16", number) if number.dtype == DTYPE else number


@lru_cache(maxsize=8)
def product(data_dtype: str, weights_dtype: str, lanes: int) -> Any:
    """``te.TensorIntrin`` of ``sum[i] += data[0] * weights[i, 0] + data[1] * weights[i, 1]`` over ``lanes`` lanes.

    The dtypes are bfloat16 or uint16.
    """
    data, weights = te.placeholder((PAIR,), data_dtype), te.placeholder((lanes, PAIR), weights_dtype)
    two = te.reduce_axis((0, PAIR))
    total = te.compute((lanes,), lambda i: te.sum(value(data[two]) * value(weights[i, two]), axis=two))
    buffers = {
        data: tir.decl_buffer((PAIR,), data_dtype, offset_factor=1, strides=[1]),
        weights: tir.decl_buffer((lanes, PAIR), weights_dtype, offset_factor=1, strides=[PAIR, 1]),
        total: tir.decl_buffer((lanes,), "float32", offset_factor=1, strides=[1]),
    }

    def body(inputs: Any, outputs: Any) -> tuple[Any, Any, Any]:
        zero = tir.const(0, f"float32x{lanes}")
        kept = outputs[0].vload([0], f"float32x{lanes}")
        first, more = _added(inputs, lanes, zero), _added(inputs, lanes, kept)
        return outputs[0].vstore([0], first), outputs[0].vstore([0], zero), outputs[0].vstore([0], more)

    return te.decl_tensor_intrin(total.op, body, binds=buffers)


def _added(inputs: Any, lanes: int, total: Any) -> Any:
    pair = tir.reinterpret("int32", inputs[0].vload([0], f"{inputs[0].dtype}x{PAIR}"))
    weights = tir.reinterpret(f"int32x{lanes}", inputs[1].vload([0, 0], f"{inputs[1].dtype}x{PAIR * lanes}"))
    return tir.call_extern(
        f"float32x{lanes}", f"tunesmith_dpbf16ps_{lanes}", total, tir.Broadcast(pair, lanes), weights
    )
