from __future__ import annotations

import pytest

from tuner.engines.runtime import targets

FEATURES = {
    "x86-64": {"sse2", "slow-3ops-lea"},
    "haswell": {"sse2", "avx2", "fma", "bmi2", "no-bypass-delay-mov", "ermsb"},
    "skylake-avx512": {"sse2", "avx2", "fma", "bmi2", "avx512f", "prefer-256-bit"},
    "znver3": {"sse2", "avx2", "fma", "bmi2", "vaes", "fast-15bytenop"},
    "bdver4": {"sse2", "avx2", "fma", "fma4", "xop", "bmi2"},
    "sapphirerapids": {"sse2", "avx2", "fma", "bmi2", "avx512f", "amx-int8", "serialize"},
    "cortex-a72": {"neon", "crc", "a72", "fuse-aes", "el3", "perfmon"},
    "neoverse-v1": {"neon", "crc", "sve", "bf16", "i8mm", "el3"},
}


@pytest.mark.parametrize(
    ("host", "runs"),
    [
        ("znver3", {"x86-64", "haswell", "znver3"}),
        ("x86-64", {"x86-64"}),
        ("sapphirerapids", {"x86-64", "haswell", "skylake-avx512", "sapphirerapids"}),
        ("neoverse-v1", {"cortex-a72", "neoverse-v1"}),
    ],
)
def test_instructions_count_and_tuning_does_not(host: str, runs: set[str]) -> None:
    foreign = targets.foreign(list(FEATURES), host, FEATURES.__getitem__)
    assert set(FEATURES) - set(foreign) == runs


def test_of_a_host_that_llvm_does_not_know_nothing_is_said() -> None:
    assert targets.foreign(list(FEATURES), "brand-new", FEATURES.__getitem__) == []
