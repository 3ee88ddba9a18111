"""Each format of a build, loaded by plain TVM or linked by hand, without any code of ours."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import home, start
from tuner.session import EngineSession

pytestmark = pytest.mark.engine

FORMATS = ("shared", "object", "system-lib")
PLAIN_TVM = """
import ctypes, sys
import numpy as np
import tvm
from tvm.contrib import graph_executor
folder, name, inputs, outputs = sys.argv[1:]
if name == "system":
    ctypes.CDLL(f"{folder}/linked.so", mode=ctypes.RTLD_GLOBAL)
    library = tvm.runtime.system_lib()
else:
    library = tvm.runtime.load_module(f"{folder}/{name}")
executor = graph_executor.create(open(f"{folder}/mod.json").read(), library, tvm.cpu(0))
executor.load_params(open(f"{folder}/mod.params", "rb").read())
executor.set_input("image", np.load(inputs)["image"])
executor.run()
np.savez(outputs, scores=executor.get_output(0).numpy())
"""


@pytest.fixture(scope="module")
def built(relay: EngineSession, place: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of each format."""
    folders = {form: tmp_path_factory.mktemp(form) for form in FORMATS}
    for form, folder in folders.items():
        params = {**place, "records": None, "out_dir": str(folder), "format": form}
        answer = relay.request("compile", params, timeout=120)
        assert sorted(answer["files"]) == sorted(path.name for path in folder.iterdir())
    return folders


def _run_in_plain_tvm(folder: Path, name: str, inputs: Path, outputs: Path) -> None:
    asking.inside("relay", PLAIN_TVM, folder, name, inputs, outputs, folder=outputs.parent)


def _agrees(reference: EngineSession, model: Path, inputs: Path, actual: Path) -> bool:
    return all(each["passed"] for each in asking.compare_with_model(reference, model, inputs, actual))


@pytest.mark.parametrize(
    ("form", "name"),
    [("shared", "mod.so"), ("object", "mod.so"), ("object", "mod.tar"), ("system-lib", "mod.so")],
)
def test_plain_tvm_loads_it(
    reference: EngineSession,
    prepared: Path,
    inputs: list[Path],
    built: dict[str, Path],
    tmp_path: Path,
    form: str,
    name: str,
) -> None:
    _run_in_plain_tvm(built[form], name, inputs[0], tmp_path / "actual.npz")
    assert _agrees(reference, prepared, inputs[0], tmp_path / "actual.npz")


def test_a_system_library_registers_itself_where_it_is_linked(
    reference: EngineSession, prepared: Path, inputs: list[Path], built: dict[str, Path], tmp_path: Path
) -> None:
    folder = built["system-lib"]
    [runtime] = home().glob("engines/relay-*/lib/python3.11/site-packages/tvm/libtvm.so")
    archive = ["-Wl,--whole-archive", str(folder / "mod.a"), "-Wl,--no-whole-archive"]
    # Whoever links it names the runtime, as a firmware or an application would.
    link = ["gcc", "-shared", "-o", str(folder / "linked.so"), *archive, str(runtime)]
    subprocess.run(link, check=True, capture_output=True, timeout=60)
    _run_in_plain_tvm(folder, "system", inputs[1], tmp_path / "actual.npz")
    assert _agrees(reference, prepared, inputs[1], tmp_path / "actual.npz")


def test_every_format_runs_in_the_engine(
    relay: EngineSession,
    reference: EngineSession,
    prepared: Path,
    inputs: list[Path],
    built: dict[str, Path],
    tmp_path: Path,
) -> None:
    # Twice the same names in one process: each library keeps its own functions.
    for form in (*FORMATS, *FORMATS):
        params = {
            "bundle": str(built[form]),
            "inputs": str(inputs[0]),
            "outputs": str(tmp_path / "a.npz"),
            "threads": 1,
        }
        relay.request("run", params, timeout=60)
        assert _agrees(reference, prepared, inputs[0], tmp_path / "a.npz")


def test_a_folder_keeps_nothing_of_another_format(relay: EngineSession, place: dict[str, Any], tmp_path: Path) -> None:
    for form, kept in (("object", {"mod.tar"}), ("system-lib", {"mod.a"}), ("shared", set())):
        relay.request("compile", {**place, "records": None, "out_dir": str(tmp_path), "format": form}, timeout=120)
        assert {path.name for path in tmp_path.iterdir()} == {"mod.so", "mod.json", "mod.params"} | kept


def test_an_unknown_format_is_refused(relay: EngineSession, place: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(errors.EngineRequestFailed, match="shared") as caught:
        relay.request("compile", {**place, "records": None, "out_dir": str(tmp_path), "format": "exe"}, timeout=60)
    assert caught.value.engine_code == "invalid_option"


def test_object_files_do_without_a_linker(
    place: dict[str, Any], engine_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a cross toolchain refuses shared libraries at once and still makes object files."""
    # Everything that the engine itself may call, and no compiler.
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
    params = {**place, "target": target, "records": None, "out_dir": str(tmp_path / "out")}
    with start("relay", engine_logs / "no-toolchain.log") as engine:
        with pytest.raises(errors.EngineRequestFailed, match="aarch64-linux-gnu-gcc") as caught:
            engine.request("compile", {**params, "format": "shared"}, timeout=60)
        assert caught.value.engine_code == "cross_compiler_missing"
        assert caught.value.hint
        assert "gcc-aarch64-linux-gnu" in caught.value.hint
        assert not (tmp_path / "out").exists()
        answer = engine.request("compile", {**params, "format": "object"}, timeout=120)
        with pytest.raises(errors.EngineRequestFailed) as caught:
            engine.request("compile", {**params, "format": "system-lib"}, timeout=60)
        assert caught.value.engine_code == "cross_compiler_missing"
    assert answer["files"] == ["mod.tar", "mod.json", "mod.params"]
    with tarfile.open(tmp_path / "out" / "mod.tar") as archive:
        [first, *_] = archive.getnames()
        content = archive.extractfile(first)
        assert content
        # ELF's e_machine: EM_AARCH64 is 183.
        assert int.from_bytes(content.read()[18:20], "little") == 183
