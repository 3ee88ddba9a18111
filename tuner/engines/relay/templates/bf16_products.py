"""Pairwise bfloat16 products with float32 sums: AVX512-BF16's ``vdpbf16ps``.

TVM 0.19 removes bfloat16 from a program before code generation: it computes in float32, and stores in float32 what a
program allocates. Padded data is therefore stored as uint16.
"""

from __future__ import annotations

from typing import Any

from tvm import tir

from tuner.engines.relay.templates.narrow_numbers import Numbers

DTYPE = "bfloat16"


def _value(number: Any) -> Any:
    """Return a bfloat16, or the uint16 that contains one, as float32."""
    if number.dtype == DTYPE:
        return number.astype("float32")
    return tir.reinterpret("float32", number.astype("uint32") << tir.const(16, "uint32"))


def _bits(number: Any) -> Any:
    """Return a bfloat16 from memory as uint16: TVM would keep a bfloat16 buffer inside a function as float32."""
    return tir.reinterpret("uint16", number) if number.dtype == DTYPE else number


NUMBERS = Numbers(
    name="bf16",
    group=2,
    data=DTYPE,
    weights=DTYPE,
    sums="float32",
    stored="uint16",
    value=_value,
    bits=_bits,
    features=("avx512bf16", "avx512vl"),
    instruction="llvm.x86.avx512bf16.dpbf16ps",
    operand=lambda lanes: f"<{2 * lanes} x bfloat>",
)
