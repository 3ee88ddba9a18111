"""What schedules for CPUs are made for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.engines.relax import targets

CACHE_BYTES = 1 << 19
"""Part of a core's second cache for what is read again and again; servers have a megabyte or two."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    lanes: int
    """float32 values in a vector register."""
    accumulators: int
    """Vector registers that a tile may fill; the others hold the operands."""
    threads: int

    @classmethod
    def of(cls, target: Any) -> Machine:
        lanes = targets.lanes_of(target)
        # AVX-512 and NEON have 32 vector registers, AVX and SSE 16.
        wide = lanes >= 16 or target.attrs.get("mtriple", "").startswith(("aarch64", "arm64"))
        return cls(lanes=lanes, accumulators=24 if wide else 12, threads=int(target.attrs.get("num-cores", 1)))

    def rows(self, vectors: int) -> int:
        """Return of how many rows a tile of so many vectors may be, beside whose sums a row's operands have room."""
        free = self.accumulators * 4 // 3 - vectors - 1
        return min(self.accumulators, free) // vectors


def vector_width(extent: int, most: int) -> int:
    """Return the largest power of two up to ``most`` that divides ``extent``."""
    width = 1
    while width * 2 <= most and extent % (width * 2) == 0:
        width *= 2
    return width


def divisors(number: int, most: int) -> list[int]:
    """Return the divisors of ``number`` up to ``most``."""
    return [size for size in range(1, min(number, most) + 1) if number % size == 0]
