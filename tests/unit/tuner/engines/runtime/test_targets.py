from __future__ import annotations

import re

import pytest

from tuner.engines.runtime import targets
from tuner.engines.runtime.library import linking

FEATURES = {
    "x86-64": {"sse2", "slow-3ops-lea"},
    "haswell": {"sse2", "avx2", "fma", "bmi2", "no-bypass-delay-mov", "ermsb"},
    "skylake-avx512": {"sse2", "avx2", "fma", "bmi2", "avx512f", "prefer-256-bit"},
    "znver3": {"sse2", "avx2", "fma", "bmi2", "sse4a", "fast-15bytenop"},
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
    known = [name for name, features in FEATURES.items() if ("neon" in features) == ("neon" in FEATURES[host])]
    foreign = targets.foreign(known, host, FEATURES.__getitem__)
    assert set(known) - set(foreign) == runs


def test_of_a_host_that_llvm_does_not_know_nothing_is_said() -> None:
    assert targets.foreign(list(FEATURES), "brand-new", FEATURES.__getitem__) == []


class _Tvm:
    """A TVM whose LLVM takes this machine for a Sapphire Rapids."""

    class target:  # noqa: N801
        class codegen:  # noqa: N801
            @staticmethod
            def llvm_get_system_cpu() -> str:
                return "sapphirerapids"

            @staticmethod
            def llvm_get_cpu_features(_: object) -> list[str]:
                return ["sse4.1", "avx512vnni", "bmi", "lzcnt", "amx-int8", "avx512fp16", "false-deps-perm"]


class _Target:
    def __init__(self, **attrs: str) -> None:
        self.attrs = attrs


def test_code_for_this_machine_needs_no_feature_that_this_machine_hides() -> None:
    flags = ["sse4_1", "avx512_vnni", "bmi1", "abm", "fpu"]
    own = targets.required_features(_Tvm, _Target(mcpu="sapphirerapids"), flags)
    assert own == ["avx512vnni", "bmi", "lzcnt", "sse4.1"]
    for other in (_Target(mcpu="graniterapids"), _Target(mcpu="sapphirerapids", mtriple="x86_64-linux-gnu"), _Target()):
        assert "amx-int8" in targets.required_features(_Tvm, other, flags)


def test_libraries_look_for_the_same_instructions() -> None:
    found = re.findall(r'\{"([a-z0-9.-]+)", ', (linking.DRIVER / "cpu.c").read_text())
    assert len(found) == len(set(found))
    assert set(found) == targets.INSTRUCTIONS
