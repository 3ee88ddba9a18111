"""Products of pairs of bfloat16 numbers, added up in float32: AVX512-BF16's ``vdpbf16ps``.

Each lane of the instruction adds two products to a float32: of a pair of input channels, which every lane takes, and of
the pair's weights for the lane's output channel. The pair is 32 bits in memory, which loads into all lanes at once.
``MULTIPLE`` and what follows it say how many sums are kept in registers at once: outputs of so many channels.

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


MULTIPLE = 8
"""Of output channels: the lanes of the instruction's narrow form."""
_USUAL = 32
"""Channels in a block: two wide registers. A network whose operators agree on blocks needs no layout transforms."""
_REGISTERS = 32
_LATENCY = 7
"""Cycles from one sum to the next in the same register, rounded up."""
_LOAD_CYCLES = 1.4
"""Of a load into a wide register. Measured on Zen 4: with one register of channels, so a load for each product, 0.71 of
the products that two or more reach."""
_BYTES = 4
"""Of a float32."""
_STACK = 1024
"""Bytes from which TVM allocates a tile's sums anew each time, instead of on the stack."""
_ALLOCATED = 0.85
"""What is left then, when there are few products to a sum: measured 0.55 with 8 pairs, 0.83 with 32, 0.95 with 128."""
MOST_VECTORS = 8
"""Registers that a block of channels fills, at most."""


def divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def vectors(block: int) -> int:
    """Registers that a block of output channels fills."""
    return block // lanes_of(block)


def fits_registers(entity: Any) -> bool:
    """Whether a split of output channels, a ``SplitEntity``, ends in a block that can be computed."""
    block = int(entity.size[-1])
    return block % MULTIPLE == 0 and vectors(block) <= MOST_VECTORS


def output_block(channels: int, count: int) -> int:
    """Of output channels, a multiple of 8, with ``count`` outputs in a row."""
    if channels % _USUAL == 0:
        return _USUAL
    blocks = [each for each in divisors(channels) if each % MULTIPLE == 0 and vectors(each) <= MOST_VECTORS]
    return max(blocks, key=lambda block: (round(efficiency(block, outputs(count, block)), 1), -block))


def input_block(channels: int, count: int) -> int:
    """Of input channels, an even number: as an operator before with ``count`` outputs in a row blocks them."""
    if channels % MULTIPLE == 0:
        return output_block(channels, count)
    return max(each for each in divisors(channels) if each % PAIR == 0 and each <= _USUAL)


def most_outputs(block: int) -> int:
    """How many outputs fit beside each other with a block of channels, its weights and one pair of inputs."""
    return max(1, (_REGISTERS - 1 - vectors(block)) // vectors(block))


def outputs(count: int, block: int) -> int:
    """The divisor of ``count`` outputs in a row to compute at once."""
    fitting = [each for each in divisors(count) if each <= most_outputs(block)]
    return max(fitting, key=lambda each: (round(efficiency(block, each), 2), -each))


def efficiency(block: int, outputs_at_once: int) -> float:
    """Share of the instruction's peak that a tile can reach."""
    sums, loads = vectors(block) * outputs_at_once, vectors(block) + outputs_at_once
    # Narrow forms start, and load, two a cycle.
    per_cycle = WIDE // lanes_of(block)
    share = sums / max(sums, _LOAD_CYCLES * loads, _LATENCY * per_cycle)
    return share if sums * lanes_of(block) * _BYTES < _STACK else share * _ALLOCATED
