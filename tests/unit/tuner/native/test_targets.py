from __future__ import annotations

import pytest

from tuner.native import targets
from tuner.native.lines import Refused

GPU = {
    "kind": "cuda",
    "tag": "",
    "keys": ["cuda", "gpu"],
    "host": {"kind": "llvm", "tag": "", "keys": ["cpu"], "num-cores": 2, "mcpu": "znver3"},
    "max_num_threads": 1024,
    "registers_per_block": 65536,
    "thread_warp_size": 32,
    "max_shared_memory_per_block": 49152,
    "max_threads_per_block": 1024,
    "arch": "sm_90",
}
ARM = {
    "kind": "llvm",
    "tag": "",
    "keys": ["arm_cpu", "cpu"],
    "feature.has_sme": False,
    "feature.has_dotprod": True,
    "num-cores": 4,
    "mtriple": "aarch64-linux-gnu",
    "mattr": ["+neon", "+dotprod"],
}


@pytest.mark.parametrize(
    ("written", "text", "threads"),
    [
        ("llvm -keys=cpu -mcpu=skylake-avx512 -num-cores=2", "llvm -mcpu=skylake-avx512", 2),
        ("llvm -keys=cpu -mcpu=znver3", "llvm -mcpu=znver3", None),
        (
            "llvm -keys=arm_cpu,cpu -device=arm_cpu -mattr=+neon,+dotprod -mtriple=aarch64-linux-gnu -num-cores=4",
            "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod -device=arm_cpu",
            4,
        ),
        (
            "llvm -keys=x86,cpu -device=x86 -model=foo -mtriple=x86_64-linux-gnu",
            "llvm -mtriple=x86_64-linux-gnu -device=x86",
            None,
        ),
        ("cuda -keys=cuda,gpu -arch=sm_90 -max_num_threads=1024 -thread_warp_size=32", "cuda -arch=sm_90", None),
        (GPU, "cuda -arch=sm_90", 2),
        (ARM, "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod", 4),
    ],
)
def test_what_tvm_writes_is_read_as_we_spell_it(written: object, text: str, threads: int | None) -> None:
    assert targets.read(written) == (text, threads)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "opencl -keys=opencl,gpu",
        "llvm -libs=mkl -mcpu=znver3",
        "llvm -opt-level=2 -mcpu=znver3",
        "llvm -fast-math-nnan=1 -mcpu=znver3",
        "llvm -mcpu=znver3 -mcpu=znver2",
        "llvm -keys=arm_cpu,cpu -mcpu=znver3",
        "llvm --system-lib",
        "llvm -num-cores=0",
        "llvm -num-cores=99999999999",
        "llvm -num-cores=²",
        "llvm mcpu=znver3",
        "cuda -keys=cuda,gpu",
        None,
        [],
        {},
        {"kind": 1},
        {"kind": "llvm", "mcpu": None},
        {"kind": "llvm", "mcpu": 1.5},
        {"kind": "llvm", "mattr": [1]},
        {"kind": "cuda", "arch": "sm_90", "host": "llvm"},
        {"kind": "llvm", "libs": ["mkl"]},
    ],
)
def test_a_target_of_other_code_is_refused(written: object) -> None:
    with pytest.raises(Refused):
        targets.read(written)


def test_a_plain_llvm_is_what_tvm_writes_with_its_host() -> None:
    by_default, _ = targets.read("llvm -keys=cpu -mtriple=x86_64-unknown-linux-gnu")
    assert targets.meant_by(by_default, "llvm")
    assert not targets.meant_by(by_default, "llvm -mcpu=znver3")
    assert not targets.meant_by("llvm -mtriple=aarch64-unknown-linux-gnu", "llvm")
    assert not targets.meant_by("llvm -mtriple=x86_64-unknown-linux-gnu -mattr=+avx2", "llvm")
    assert not targets.meant_by("llvm -mcpu=znver3", "llvm")
