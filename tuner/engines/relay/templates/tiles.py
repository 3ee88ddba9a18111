"""Tile sizes for instructions that multiply narrow numbers: AVX512-BF16's ``vdpbf16ps``, AVX512-VNNI's ``vpdpbusd``.

Each lane adds the products of a group of input channels, which is the same in all lanes, with the group's weights for
the lane's output channel. The group is 32 bits in memory, so one load broadcasts it to all lanes. The definitions
determine how many sums, for how many outputs and channels, are kept in registers at once. Latency and loads were
measured with pairs of bfloat16 on Zen 4; bytes have the same.
"""

from __future__ import annotations

from typing import Any

WIDE, NARROW = 16, 8
"""32-bit lanes of the instruction's two forms; Zen 4 starts one wide one per cycle, or two narrow ones."""
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


def input_block(channels: int, count: int, group: int) -> int:
    """Return the block of input channels, whole groups, as a preceding operator with ``count`` outputs blocks them."""
    if channels % MULTIPLE == 0:
        return output_block(channels, count)
    return max(each for each in divisors(channels) if each % group == 0 and each <= _USUAL)


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


def lanes_of(block: int) -> int:
    """Return the instruction width for a block of output channels, a multiple of 8."""
    return WIDE if block % WIDE == 0 else NARROW
