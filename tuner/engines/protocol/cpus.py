"""Which CPUs' code another CPU runs, by the features that LLVM gives each. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

_INSTRUCTIONS = re.compile(
    # x86
    r"(?:s?sse|avx|fma|xop|f16c|tbm|bmi|lzcnt|popcnt|movbe|gfni|vaes|vpclmul|adx|amx-|egpr|ndd|ccmp|nf$|ppx|push2|zu$)"
    # aarch64
    r"|(?:fp-armv8|neon|sve|sme|dotprod|i8mm|bf16|fullfp16|fp16fml|lse|rcpc|rdm|complxnum|jsconv|crc|aes|sha|mops|cssc)"
)
"""Features that compilers emit instructions of; most of LLVM's others tell what is quick, or what kernels need."""


def foreign(known: Collection[str], host: str, features_of: Callable[[str], Collection[str]]) -> list[str]:
    """Those of the ``known`` CPUs whose code needs instructions that ``host``, one of them, does not have."""
    if host not in known:
        return []
    own = _instructions(features_of(host))
    return [name for name in known if not _instructions(features_of(name)) <= own]


def _instructions(features: Collection[str]) -> set[str]:
    return {name for name in features if _INSTRUCTIONS.match(name)}
