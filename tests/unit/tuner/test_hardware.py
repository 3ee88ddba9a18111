from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.host import hardware

INTEL = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
stepping\t: 8
flags\t\t: fpu sse sse2 avx avx2 fma f16c avx512f avx512bw avx512_vnni avx512_bf16 amx_bf16 amx_tile amx_int8

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: something else
"""
INTEL_FEATURES = "avx+avx2+fma+avx512f+avx512bw+avx512vnni+avx512bf16+amx+amxbf16+amxint8"
AMD = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC 7B13
flags\t\t: fpu sse sse2 avx avx2 fma
"""
GRAVITON = """\
processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd evtstrm aes asimdhp cpuid asimddp sve i8mm bf16
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1
"""


@pytest.mark.parametrize(
    ("cpuinfo", "machine", "key", "name"),
    [
        (
            INTEL,
            "x86_64",
            f"x86_64/genuineintel-6-143-intel-xeon-platinum-8481c/{INTEL_FEATURES}/t4",
            "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
        ),
        (AMD, "x86_64", "x86_64/authenticamd-25-1-amd-epyc-7b13/avx+avx2+fma/t4", "AMD EPYC 7B13"),
        (GRAVITON, "aarch64", "aarch64/arm-0x41-0xd40-0x1/neon+fp16+dotprod+i8mm+bf16+sve/t4", "arm-0x41-0xd40-0x1"),
        ("", "riscv64", "riscv64/riscv64/scalar/t4", "riscv64"),
        ("no field here", "", "/unknown/scalar/t4", "unknown CPU"),
    ],
    ids=["intel", "amd", "graviton", "nothing", "garbage"],
)
def test_a_device_is_known_by_its_processor(cpuinfo: str, machine: str, key: str, name: str) -> None:
    device = hardware.describe(cpuinfo, machine=machine, threads=4)
    assert (device.key, device.name, device.threads) == (key, name, 4)


def test_each_fact_that_changes_the_fastest_code_changes_the_key() -> None:
    variants = [AMD, AMD.replace(" fma", ""), AMD.replace("model\t\t: 1", "model\t\t: 17"), AMD.replace("7B13", "7B14")]
    keys = {hardware.describe(text, machine="x86_64", threads=threads).key for text in variants for threads in (1, 2)}
    assert len(keys) == 8
    same = AMD.replace("flags\t\t: fpu", "flags\t\t: md_clear fpu") + "microcode\t: 0x5\n"
    assert hardware.describe(same, machine="x86_64", threads=1).key in keys


def test_this_host_has_a_device() -> None:
    device = hardware.device()
    assert device == hardware.device()
    assert 1 <= device.threads <= len(os.sched_getaffinity(0))
    assert hardware.device(1).key != hardware.device(2).key


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", None), ("150000 100000", 1), ("1000 100000", 1)])
def test_a_cgroup_2_quota_cuts_the_cores(tmp_path: Path, quota: str, cores: int | None) -> None:
    (tmp_path / "membership").write_text("0::/service/engine\n")
    (tmp_path / "service" / "engine").mkdir(parents=True)
    (tmp_path / "service" / "cpu.max").write_text(quota + "\n")
    (tmp_path / "service" / "engine" / "cpu.max").write_text("max 100000\n")
    expected = cores or len(os.sched_getaffinity(0))
    assert hardware.usable_cores(tmp_path, tmp_path / "membership") == expected


@pytest.mark.parametrize(("quota", "cores"), [("-1", None), ("100000", 1)])
def test_a_cgroup_1_quota_cuts_the_cores(tmp_path: Path, quota: str, cores: int | None) -> None:
    (tmp_path / "membership").write_text("4:memory:/\n3:cpu,cpuacct:/box\n0::/\n")
    (tmp_path / "cpu" / "box").mkdir(parents=True)
    (tmp_path / "cpu" / "box" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (tmp_path / "cpu" / "box" / "cpu.cfs_period_us").write_text("100000\n")
    expected = cores or len(os.sched_getaffinity(0))
    assert hardware.usable_cores(tmp_path, tmp_path / "membership") == expected


def test_gpus_are_known_by_name_and_compute_capability() -> None:
    found = hardware.gpus("NVIDIA H200, 9.0\nTesla T4, 7.5\nNVIDIA Old, \n\n", threads=4)
    assert [gpu.key for gpu in found] == ["cuda/nvidia-h200/sm_90", "cuda/tesla-t4/sm_75", "cuda/nvidia-old/unknown"]
    assert [gpu.name for gpu in found] == ["NVIDIA H200", "Tesla T4", "NVIDIA Old"]
    assert {gpu.threads for gpu in found} == {4}


@pytest.mark.contract
@pytest.mark.parametrize("broken", [True, False])
def test_a_host_without_the_tool_is_asked_for_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0" / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\n")
    monkeypatch.setattr(hardware, "_NVIDIA", tmp_path)
    monkeypatch.setattr(hardware.shutil, "which", lambda _: "/bin/false" if broken else None)
    assert [gpu.key for gpu in hardware.accelerators()] == ["cuda/nvidia-h200/unknown"]


def test_a_host_without_gpus_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_NVIDIA", tmp_path)
    monkeypatch.setattr(hardware.shutil, "which", lambda _: None)
    assert hardware.accelerators() == ()
