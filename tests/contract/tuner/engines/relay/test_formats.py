"""Builds that are linked elsewhere: by hand, without any code of ours, and where there is no linker."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin, start
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

PLAIN_TVM = """
import ctypes, sys
import numpy as np
import tvm
from tvm.contrib import graph_executor
folder, inputs, outputs = sys.argv[1:]
ctypes.CDLL(f"{folder}/linked.so", mode=ctypes.RTLD_GLOBAL)
library = tvm.runtime.system_lib()
executor = graph_executor.create(open(f"{folder}/mod.json").read(), library, tvm.cpu(0))
executor.load_params(open(f"{folder}/mod.params", "rb").read())
executor.set_input("image", np.load(inputs)["image"])
executor.run()
np.savez(outputs, scores=executor.get_output(0).numpy())
"""


def test_a_system_library_registers_itself_where_it_is_linked(
    relay_twin: Twin, reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "built"
    asking.build(relay_twin.session, relay_twin.place, folder, format="system-lib")
    runtime = asking.installed("relay", "tvm/libtvm.so")
    archive = ["-Wl,--whole-archive", str(folder / "mod.a"), "-Wl,--no-whole-archive"]
    # Whoever links it names the runtime, as a firmware or an application would.
    link = ["gcc", "-shared", "-o", str(folder / "linked.so"), *archive, str(runtime)]
    subprocess.run(link, check=True, capture_output=True, timeout=60)
    asking.inside("relay", PLAIN_TVM, folder, inputs[1], tmp_path / "actual.npz", folder=tmp_path)
    [output] = asking.compare_with_model(reference, prepared, inputs[1], tmp_path / "actual.npz")
    assert output["passed"]


def test_object_files_do_without_a_linker(
    place: dict[str, Any], engine_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a cross toolchain refuses shared libraries at once and still makes object files."""
    # Everything that the engine itself may call, and no compiler.
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
    params = {**place, "target": target, "records": None, "out_dir": str(tmp_path / "out")}
    with start("relay", engine_logs / "no-toolchain.log") as engine:
        refused = asking.refusal(engine, "compile", {**params, "format": "shared"})
        assert (refused.engine_code, "aarch64-linux-gnu-gcc" in str(refused)) == ("cross_compiler_missing", True)
        assert "gcc-aarch64-linux-gnu" in str(refused.hint)
        assert not (tmp_path / "out").exists()
        answer = engine.request("compile", {**params, "format": "object"}, timeout=120)
        refused = asking.refusal(engine, "compile", {**params, "format": "system-lib"})
        assert refused.engine_code == "cross_compiler_missing"
    assert answer["files"] == ["mod.tar", "mod.json", "mod.params", "needs-tvm.txt"]
    with tarfile.open(tmp_path / "out" / "mod.tar") as archive:
        [first, *_] = archive.getnames()
        content = archive.extractfile(first)
        assert content
        # ELF's e_machine: EM_AARCH64 is 183.
        assert int.from_bytes(content.read()[18:20], "little") == 183
