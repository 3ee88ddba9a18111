from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support import models
from tests.support.tuner.engines.relax import networks
from tuner import catalogue, environments
from tuner.session import EngineSession

pytestmark = pytest.mark.engine

PLAIN_TVM = """
import sys
import numpy as np
import tvm
from tvm import relax
machine = relax.VirtualMachine(tvm.runtime.load_module(f"{sys.argv[1]}/mod.so"), tvm.cpu())
scores = machine["main"](tvm.runtime.tensor(np.load(sys.argv[2])["image"]))
np.savez(sys.argv[3], scores=scores.numpy())
"""

NETWORKS = {
    "reduce_mean_18": models.reduce_mean_18,
    "grid_sample_16": lambda: networks.grid_sample(16),
    "grid_sample_20": lambda: networks.grid_sample(20),
    "attention": networks.attention,
    "matmul": networks.matmul,
    "convolution": networks.convolution,
    "thin_convolution": networks.thin_convolution,
    "sums": networks.sums,
    "means": networks.means,
    "transposed_convolution": networks.transposed_convolution,
    "wide_integers": networks.wide_integers,
}


def _prepare(reference: EngineSession, folder: Path, content: bytes) -> Path:
    (folder / "model.onnx").write_bytes(content)
    params = {"path": str(folder / "model.onnx"), "input_shapes": {}, "out_path": str(folder / "prepared.onnx")}
    reference.request("prepare", params, timeout=60)
    return folder / "prepared.onnx"


def _compare(reference: EngineSession, model: Path, inputs: Path, actual: Path, **more: Any) -> list[dict[str, Any]]:
    expected = actual.with_name("expected.npz")
    params = {"path": str(model), "inputs": str(inputs), "outputs": str(expected), "threads": 1}
    reference.request("run", params, timeout=60)
    compared = reference.request("compare", {"expected": str(expected), "actual": str(actual), **more}, timeout=60)
    outputs: list[dict[str, Any]] = compared["outputs"]
    return outputs


def _compile_and_compare(
    relax: EngineSession, reference: EngineSession, model: Path, target: str, folder: Path, **more: Any
) -> list[dict[str, Any]]:
    bundle = folder / "bundle"
    params = {"model": str(model), "target": target, "threads": 1, "records": None, "out_dir": str(bundle), **more}
    relax.request("compile", params, timeout=120)
    specs = json.loads((bundle / "mod.json").read_text())["inputs"]
    made = reference.request("make_inputs", {"inputs": specs, "seeds": [0], "out_dir": str(folder)}, timeout=60)
    [fed] = made["paths"]
    run = {"bundle": str(bundle), "inputs": fed, "outputs": str(folder / "actual.npz"), "threads": 1}
    relax.request("run", run, timeout=60)
    return _compare(reference, model, Path(fed), folder / "actual.npz")


def test_hello_tells_toolchain_and_cpu(relax: EngineSession) -> None:
    assert relax.hello["toolchain"] == {"engine": "relax", "tvm": "0.27.0.post1", "llvm": "22"}
    assert relax.hello["mcpu"] in relax.hello["cpus"]
    assert relax.hello["tuners"] == ["metaschedule"]
    assert relax.hello["kinds"] == ["llvm", "cuda"]


@pytest.mark.smoke
def test_compiled_agrees_with_the_reference(
    relax: EngineSession, reference: EngineSession, prepared: Path, inputs: list[Path], untuned: Path, tmp_path: Path
) -> None:
    for path in inputs:
        params = {"bundle": str(untuned), "inputs": str(path), "outputs": str(tmp_path / "a.npz"), "threads": 1}
        answer = relax.request("run", {**params, "number": 2, "repeat": 3}, timeout=60)
        assert answer["outputs"] == [{"name": "scores", "dtype": "float32", "shape": [1, 5]}]
        assert len(answer["samples"]) == 3
        [output] = _compare(reference, prepared, path, tmp_path / "a.npz")
        assert (output["output"], output["passed"]) == ("scores", True)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_agree_with_the_reference(
    relax: EngineSession, reference: EngineSession, target: str, tmp_path: Path, name: str
) -> None:
    model = _prepare(reference, tmp_path, NETWORKS[name]())
    outputs = _compile_and_compare(relax, reference, model, target, tmp_path)
    assert outputs
    assert all(output["passed"] for output in outputs)


def test_threads_change_no_results(relax: EngineSession, reference: EngineSession, target: str, tmp_path: Path) -> None:
    # Large enough for loops that are worth threads.
    model = _prepare(reference, tmp_path, networks.attention(size=64, length=32))
    [output] = _compile_and_compare(relax, reference, model, target, tmp_path, threads=2)
    assert output["passed"]


def test_convolutions_may_keep_their_layout(
    relax: EngineSession, reference: EngineSession, prepared: Path, target: str, tmp_path: Path
) -> None:
    [output] = _compile_and_compare(relax, reference, prepared, target, tmp_path, options={"layout": "NCHW"})
    assert output["passed"]


def test_half_precision_keeps_outer_dtypes(
    relax: EngineSession, reference: EngineSession, prepared: Path, target: str, tmp_path: Path
) -> None:
    [output] = _compile_and_compare(relax, reference, prepared, target, tmp_path, precision="fp16")
    assert output["dtype"] == "float32"
    # Half floats have 11 bits: an error that float32 would not have, and none that they would not.
    assert 1e-6 < output["max_rel"] < 1e-2


def test_plain_tvm_loads_the_files(
    reference: EngineSession, prepared: Path, inputs: list[Path], untuned: Path, tmp_path: Path
) -> None:
    home = Path(os.environ.get("TUNESMITH_HOME") or Path.home() / ".local" / "share" / "tunesmith")
    python = environments.interpreter(catalogue.get("relax"), home)
    command = [str(python), "-c", PLAIN_TVM, str(untuned), str(inputs[0]), str(tmp_path / "a.npz")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [output] = _compare(reference, prepared, inputs[0], tmp_path / "a.npz")
    assert output["passed"]


@pytest.mark.smoke
def test_time_gives_one_sample_per_repeat(relax: EngineSession, untuned: Path, inputs: list[Path]) -> None:
    params = {"bundle": str(untuned), "inputs": str(inputs[0]), "threads": 1, "number": 3, "repeat": 5}
    samples = relax.request("time", params, timeout=60)["samples"]
    assert len(samples) == 5
    assert all(0 < sample < 0.1 for sample in samples)


def test_unsupported_operators_are_named_and_counted(
    relax: EngineSession, reference: EngineSession, tmp_path: Path
) -> None:
    path = _prepare(reference, tmp_path, models.unsupported_operators())
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relax.request("check", {"model": str(path)}, timeout=60)
    assert caught.value.engine_code == "unsupported_operators"
    assert caught.value.details["operators"] == {"Det": 2}


def test_a_truncated_model_is_refused(relax: EngineSession, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(models.truncated())
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relax.request("check", {"model": str(tmp_path / "bad.onnx")}, timeout=60)
    assert caught.value.engine_code == "invalid_model"


@pytest.mark.parametrize(
    ("text", "near"),
    [("llvm -mcpu=znver9", "znver3"), ("llvm -colour=red", None), ("cuda -colour=red", None), ("vulkan", None)],
)
def test_an_unknown_target_is_refused(
    relax: EngineSession, place: dict[str, Any], tmp_path: Path, text: str, near: str | None
) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relax.request("compile", {**place, "target": text, "out_dir": str(tmp_path)}, timeout=60)
    assert caught.value.engine_code == "unknown_target"
    assert near is None or near in caught.value.details["near_matches"]


def test_bfloat16_is_left_to_autotvm(relax: EngineSession, prepared: Path, target: str, tmp_path: Path) -> None:
    params = {"model": str(prepared), "target": target, "threads": 1, "out_dir": str(tmp_path), "precision": "bf16"}
    with pytest.raises(errors.EngineRequestFailed, match="no schedules for bfloat16") as caught:
        relax.request("compile", {**params, "records": None}, timeout=60)
    assert caught.value.engine_code == "unsupported_dtype"
    assert "autotvm" in str(caught.value.hint)


@pytest.mark.parametrize("wrong", [{"format": "exe"}, {"precision": "int3"}, {"options": {"layout": "CHWN"}}], ids=str)
def test_unknown_options_are_refused(
    relax: EngineSession, place: dict[str, Any], tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relax.request("compile", {**place, "out_dir": str(tmp_path), **wrong}, timeout=60)
    assert caught.value.engine_code == "invalid_option"


@pytest.mark.parametrize(("form", "added"), [("object", "mod.tar"), ("system-lib", "mod.a")])
def test_formats_add_their_file(
    relax: EngineSession, place: dict[str, Any], tmp_path: Path, form: str, added: str
) -> None:
    answer = relax.request("compile", {**place, "format": form, "out_dir": str(tmp_path)}, timeout=120)
    assert answer["files"] == ["mod.so", added, "mod.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(answer["files"])


def test_inputs_that_do_not_fit_are_refused(
    relax: EngineSession, reference: EngineSession, untuned: Path, tmp_path: Path
) -> None:
    spec = {"name": "image", "dtype": "float32", "shape": [1, 3, 8, 8]}
    made = {"inputs": [spec], "seeds": [0], "out_dir": str(tmp_path)}
    [wrong] = reference.request("make_inputs", made, timeout=60)["paths"]
    with pytest.raises(errors.EngineRequestFailed, match=r"float32\(1, 3, 16, 16\)") as caught:
        relax.request("run", {"bundle": str(untuned), "inputs": wrong, "threads": 1}, timeout=60)
    assert caught.value.engine_code == "invalid_inputs"


def test_a_damaged_bundle_is_refused(relax: EngineSession, untuned: Path, tmp_path: Path) -> None:
    shutil.copy(untuned / "mod.so", tmp_path)
    (tmp_path / "mod.json").write_text((untuned / "mod.json").read_text()[:40])
    with pytest.raises(errors.EngineRequestFailed) as caught:
        relax.request("run", {"bundle": str(tmp_path), "threads": 1}, timeout=60)
    assert caught.value.engine_code == "invalid_bundle"
