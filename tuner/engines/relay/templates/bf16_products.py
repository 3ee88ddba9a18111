"""Pairwise bfloat16 products with float32 sums: AVX512-BF16's ``vdpbf16ps``, and tile sizes that suit it.

Each lane of the instruction adds two products to a float32: those of a pair of input channels, which is the same in all
lanes, with the pair's weights for the lane's output channel. The pair is 32 bits in memory, so one load broadcasts it
to all lanes. ``MULTIPLE`` and the definitions after it determine how many sums, for how many outputs and channels, are
kept in registers at once.

TVM 0.19 removes bfloat16 from a program before code generation: it computes in float32, and stores in float32 what a
program allocates. Padded data is therefore stored as uint16, and the instruction is called by an LLVM IR function that
accepts pairs as 32-bit integers; TVM inlines whatever ``import_llvm`` imports.
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
"""float32 lanes of the instruction's two forms; Zen 4 starts one wide one per cycle, or two narrow ones."""
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


def lanes_of(block: int) -> int:
    """Return the instruction width for a block of output channels, a multiple of 8."""
    return WIDE if block % WIDE == 0 else NARROW


def value(number: Any) -> Any:
    """Return a bfloat16, or the uint16 that contains one, as float32."""
    if number.dtype == DTYPE:
        return number.astype("float32")
    return tir.reinterpret("float32", number.astype("uint32") << tir.const(16, "uint32"))


def bits(number: Any) -> Any:
    """Return a bfloat16 from memory as uint16."""
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


MULTIPLE = 8
"""Divisor of the output channels: the lanes of the instruction's narrow form."""
_USUAL = 32
"""Default channels per block: two wide registers. With equal blocks everywhere a network needs no layout transforms."""
_REGISTERS = 32
_LATENCY = 7
"""Cycles between two sums in the same register, rounded up."""
_LOAD_CYCLES = 1.4
"""Cycles per load into a wide register. Measured on Zen 4: with one register of channels, so one load per product,
throughput is 0.71 of that with two or more."""
_BYTES = 4
"""Bytes of a float32."""
_STACK = 1024
"""Bytes from which TVM allocates a tile's sums anew each time, instead of on the stack."""
_ALLOCATED = 0.85
"""Remaining efficiency with few products per sum: measured 0.55 with 8 pairs, 0.83 with 32, 0.95 with 128."""
MOST_VECTORS = 8
"""Maximum number of registers filled by a block of channels."""


def divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def vectors(block: int) -> int:
    """Return the number of registers filled by a block of output channels."""
    return block // lanes_of(block)


def fits_registers(entity: Any) -> bool:
    """Return whether a ``SplitEntity`` of output channels ends in a block that can be computed."""
    block = int(entity.size[-1])
    return block % MULTIPLE == 0 and vectors(block) <= MOST_VECTORS


def output_block(channels: int, count: int) -> int:
    """Return the block of output channels, a multiple of 8, for ``count`` outputs in a row."""
    if channels % _USUAL == 0:
        return _USUAL
    blocks = [each for each in divisors(channels) if each % MULTIPLE == 0 and vectors(each) <= MOST_VECTORS]
    return max(blocks, key=lambda block: (round(efficiency(block, outputs(count, block)), 1), -block))


def input_block(channels: int, count: int) -> int:
    """Return the block of input channels, even, as a preceding operator with ``count`` outputs in a row blocks them."""
    if channels % MULTIPLE == 0:
        return output_block(channels, count)
    return max(each for each in divisors(channels) if each % PAIR == 0 and each <= _USUAL)


def most_outputs(block: int) -> int:
    """Return how many outputs fit in registers beside a block of channels, its weights and one pair of inputs."""
    return max(1, (_REGISTERS - 1 - vectors(block)) // vectors(block))


def outputs(count: int, block: int) -> int:
    """Return the divisor of ``count`` outputs in a row to compute at once."""
    fitting = [each for each in divisors(count) if each <= most_outputs(block)]
    return max(fitting, key=lambda each: (round(efficiency(block, each), 2), -each))


def efficiency(block: int, outputs_at_once: int) -> float:
    """Return the share of the instruction's peak throughput that a tile can reach."""
    sums, loads = vectors(block) * outputs_at_once, vectors(block) + outputs_at_once
    # Two narrow forms start, and two loads complete, per cycle.
    per_cycle = WIDE // lanes_of(block)
    share = sums / max(sums, _LOAD_CYCLES * loads, _LATENCY * per_cycle)
    return share if sums * lanes_of(block) * _BYTES < _STACK else share * _ALLOCATED
