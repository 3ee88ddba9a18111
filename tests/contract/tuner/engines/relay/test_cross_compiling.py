"""Builds for aarch64, linked by Debian's cross toolchain and run by qemu's user mode without TVM."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.contract.tuner.engines.relay import bare_runtime
from tests.support.binaries import ARM, compiler, emulator
from tests.support.tuner.engines import asking
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

EM_AARCH64 = 183
"""ELF's ``e_machine``."""


@pytest.fixture(scope="module", params=["-mcpu=cortex-a72", "-mcpu=cortex-a53 -mattr=+neon"])
def crossed(
    request: pytest.FixtureRequest,
    relay: EngineSession,
    place: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    compiler()  # or skip
    folder = tmp_path_factory.mktemp("aarch64")
    target = f"llvm -mtriple={ARM} {request.param}"
    answer = asking.build(relay, place, folder, target=target, format="system-lib")
    assert answer["files"] == ["mod.so", "mod.a", "mod.json", "mod.params", "needs-tvm.txt"]
    return folder


def test_the_library_is_for_the_other_machine(crossed: Path) -> None:
    header = (crossed / "mod.so").read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == EM_AARCH64
    names = subprocess.run(
        [f"{ARM}-nm", "--dynamic", "--defined-only", str(crossed / "mod.so")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert "tvmgen_default_fused_nn" in names
    assert "__tvm_module_ctx" in names


def test_the_network_computes_the_same_on_the_other_machine(
    crossed: Path, reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    """The static library, linked with 50 lines of C in place of TVM's runtime, as on a board without one."""
    asking.python("relay", bare_runtime.__file__, crossed, inputs[0], tmp_path)
    program = [str(tmp_path / "main.c"), str(crossed / "mod.a")]
    linked = [compiler(), "-O1", "-static", "-o", str(tmp_path / "main"), "-Wl,--whole-archive", *program]
    done = subprocess.run([*linked, "-Wl,--no-whole-archive", "-lm"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([*emulator(), tmp_path / "main", tmp_path / "tensors.bin"], capture_output=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    (tmp_path / "outputs.txt").write_bytes(ran.stdout)
    keep = "import sys, numpy as np; np.savez(sys.argv[2], scores=np.loadtxt(sys.argv[1], dtype='float32')[None])"
    actual = tmp_path / "actual.npz"
    asking.inside("relay", keep, tmp_path / "outputs.txt", actual)
    [output] = asking.compare_with_model(reference, prepared, inputs[0], actual)
    assert output["passed"], output


def test_tasks_of_the_other_machine_are_extracted(relay: EngineSession, place: dict[str, Any]) -> None:
    """Building for it is one thing; its templates, others than this machine's, are found as well."""
    target = f"llvm -mtriple={ARM} -mcpu=cortex-a72"
    tasks = relay.request("extract", {**place, "target": target}, timeout=120)["tasks"]
    assert any(task["name"].endswith(".arm_cpu") for task in tasks)
    assert all(task["space_size"] > 0 for task in tasks)
