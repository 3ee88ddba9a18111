"""Pairwise bfloat16 products with float32 sums: AVX512-BF16's ``vdpbf16ps``, as numbers of ``narrow_numbers``.

TVM 0.19 removes bfloat16 from a program before code generation: it computes in float32, and stores in float32 what a
program allocates. Padded data is therefore stored as uint16, and the instruction is called by an LLVM IR function that
accepts pairs as 32-bit integers; TVM inlines whatever ``import_llvm`` imports.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tvm import te, tir
from tvm.target.codegen import llvm_cpu_has_features

from tuner.engines.relay.templates.narrow_numbers import Numbers

DTYPE = "bfloat16"
PAIR = 2
"""Numbers whose products one lane adds up."""
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
    """Return whether a ``tvm.target.Target`` has the instruction."""
    return target.kind.name == "llvm" and bool(llvm_cpu_has_features(list(_FEATURES), target))


def function(lanes: int) -> str:
    """Return the LLVM IR for the pragma ``import_llvm`` of a loop that calls ``product``."""
    return _FUNCTION.format(n=lanes, both=PAIR * lanes, bits=32 * lanes)


def value(number: Any) -> Any:
    """Return a bfloat16, or the uint16 that contains one, as float32."""
    if number.dtype == DTYPE:
        return number.astype("float32")
    return tir.reinterpret("float32", number.astype("uint32") << tir.const(16, "uint32"))


def bits(number: Any) -> Any:
    """Return a bfloat16 from memory as uint16: TVM would keep a bfloat16 buffer inside a function as float32."""
    return tir.reinterpret("uint16", number) if number.dtype == DTYPE else number


@lru_cache(maxsize=8)
def product(data_dtype: str, weights_dtype: str, lanes: int) -> Any:
    """Return the ``te.TensorIntrin`` of ``sum[i] += data[0] * weights[i, 0] + data[1] * weights[i, 1]``.

    ``i`` runs over ``lanes`` lanes; the dtypes are bfloat16 or uint16.
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


NUMBERS = Numbers(
    name="bf16",
    group=PAIR,
    data=DTYPE,
    weights=DTYPE,
    stored="uint16",
    value=value,
    bits=bits,
    available=available,
    function=function,
    product=product,
)
