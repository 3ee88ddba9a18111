"""Compiled files, of both engines that compile: what runs them, what they answer, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain import errors
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin
from tuner.session import EngineSession

pytestmark = pytest.mark.engine

TVM = {"relay": "0.19.0", "relax": "0.27.0.post1"}
ANNOUNCED = {
    "relay": {"kinds": ["llvm"], "tuners": ["ansor", "autotvm"]},
    "relax": {"kinds": ["llvm", "cuda"], "tuners": ["metaschedule"]},
}
PLAIN_TVM = {
    "relay": """
import sys
import numpy as np
import tvm
from tvm.contrib import graph_executor
folder = sys.argv[1]
library = tvm.runtime.load_module(f"{folder}/mod.so")
executor = graph_executor.create(open(f"{folder}/mod.json").read(), library, tvm.cpu(0))
executor.load_params(open(f"{folder}/mod.params", "rb").read())
executor.set_input("image", np.load(sys.argv[2])["image"])
executor.run()
np.savez(sys.argv[3], scores=executor.get_output(0).numpy())
""",
    "relax": """
import sys
import numpy as np
import tvm
from tvm import relax
machine = relax.VirtualMachine(tvm.runtime.load_module(f"{sys.argv[1]}/mod.so"), tvm.cpu())
scores = machine["main"](tvm.runtime.tensor(np.load(sys.argv[2])["image"]))
np.savez(sys.argv[3], scores=scores.numpy())
""",
}


def test_hello_tells_toolchain_and_cpu(twin: Twin) -> None:
    hello = twin.session.hello
    assert hello["toolchain"] == {"engine": twin.name, "tvm": TVM[twin.name], "llvm": "22"}
    assert hello["mcpu"] in hello["cpus"]
    assert {name: hello[name] for name in ("kinds", "tuners")} == ANNOUNCED[twin.name]


@pytest.mark.smoke
def test_compiled_agrees_with_the_reference(
    twin: Twin, reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    for path in inputs:
        params = {"bundle": str(twin.untuned), "inputs": str(path), "outputs": str(tmp_path / "a.npz"), "threads": 1}
        answer = twin.session.request("run", {**params, "number": 2, "repeat": 3}, timeout=60)
        assert answer["outputs"] == [{"name": "scores", "dtype": "float32", "shape": [1, 5]}]
        assert len(answer["samples"]) == 3
        [output] = asking.compare_with_model(reference, prepared, path, tmp_path / "a.npz")
        assert (output["output"], output["passed"]) == ("scores", True)


def test_plain_tvm_loads_the_files(
    twin: Twin, reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    asking.inside(twin.name, PLAIN_TVM[twin.name], twin.untuned, inputs[0], tmp_path / "a.npz", folder=tmp_path)
    [output] = asking.compare_with_model(reference, prepared, inputs[0], tmp_path / "a.npz")
    assert output["passed"]


@pytest.mark.smoke
def test_time_gives_one_sample_per_repeat(twin: Twin, inputs: list[Path]) -> None:
    params = {"bundle": str(twin.untuned), "inputs": str(inputs[0]), "threads": 1, "number": 3, "repeat": 5}
    samples = twin.session.request("time", params, timeout=60)["samples"]
    assert len(samples) == 5
    assert all(0 < sample < 0.1 for sample in samples)


def test_a_folder_compiled_into_again_is_read_again(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    other, _ = asking.prepare(reference, models.reduce_mean_18(), tmp_path)
    for model, names in ((twin.place["model"], ["scores"]), (str(other), ["mean"])):
        twin.session.request("compile", {**twin.place, "model": model, "out_dir": str(folder)}, timeout=120)
        answer = twin.session.request("run", {"bundle": str(folder), "threads": 1}, timeout=60)
        assert [output["name"] for output in answer["outputs"]] == names


def test_unsupported_operators_are_named_and_counted(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    path, _ = asking.prepare(reference, models.unsupported_operators(), tmp_path)
    with pytest.raises(errors.EngineRequestFailed) as caught:
        twin.session.request("check", {"model": str(path)}, timeout=60)
    assert caught.value.engine_code == "unsupported_operators"
    assert caught.value.details["operators"] == {"Det": 2}


def test_a_truncated_model_is_refused(twin: Twin, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(models.truncated())
    with pytest.raises(errors.EngineRequestFailed) as caught:
        twin.session.request("check", {"model": str(tmp_path / "bad.onnx")}, timeout=60)
    assert caught.value.engine_code == "invalid_model"


def test_inputs_that_do_not_fit_are_refused(twin: Twin, reference: EngineSession, tmp_path: Path) -> None:
    spec = {"name": "image", "dtype": "float32", "shape": [1, 3, 8, 8]}
    wrong = asking.make_inputs(reference, [spec], tmp_path)
    with pytest.raises(errors.EngineRequestFailed, match=r"float32\(1, 3, 16, 16\)") as caught:
        twin.session.request("run", {"bundle": str(twin.untuned), "inputs": str(wrong), "threads": 1}, timeout=60)
    assert caught.value.engine_code == "invalid_inputs"


def test_a_damaged_bundle_is_refused(twin: Twin, tmp_path: Path) -> None:
    for path in twin.untuned.iterdir():
        content = path.read_bytes()
        (tmp_path / path.name).write_bytes(content[: len(content) // 2] if path.name == "mod.json" else content)
    with pytest.raises(errors.EngineRequestFailed) as caught:
        twin.session.request("run", {"bundle": str(tmp_path), "threads": 1}, timeout=60)
    assert caught.value.engine_code == "invalid_bundle"
