"""How many sums a bfloat16 product keeps in registers at once: so many outputs of so many output channels."""

from __future__ import annotations

from typing import Any

from tuner.engines.relay.templates import bf16_products as products

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
    return block // products.lanes_of(block)


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
    return max(each for each in divisors(channels) if each % products.PAIR == 0 and each <= _USUAL)


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
    per_cycle = products.WIDE // products.lanes_of(block)
    share = sums / max(sums, _LOAD_CYCLES * loads, _LATENCY * per_cycle)
    return share if sums * products.lanes_of(block) * _BYTES < _STACK else share * _ALLOCATED
