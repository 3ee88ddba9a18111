"""Memory of engines: peaks on a model with large weights, in multiples of these, and what is beyond a limit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import start
from tuner.host import failures
from tuner.host.session import EngineSession

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

MEGABYTES = 100
MOST = 3.5
"""Multiples of the weights. A copy in each of ONNX Runtime's sessions, or in TVM, would make it 5 and more."""
SIZE = 12288
"""A square matrix of float32 of this size has 576 MiB."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "model.tar"
    asking.python("onnx", "-m", "bench.large_model", MEGABYTES * 10**6, path)
    return path


@pytest.fixture(scope="module")
def large(archive: Path, engine_logs: Path) -> Path:
    """The model prepared, by another process than those whose memory is looked at."""
    with start("onnx", engine_logs / "preparing.log") as engine:
        path = archive.with_name("prepared.onnx")
        engine.request("prepare", {"path": str(archive), "input_shapes": {}, "out_path": str(path)}, timeout=120)
    return path


def _inputs(engine: EngineSession, folder: Path, model: Path) -> str:
    spec = {"name": "x", "dtype": "float32", "shape": [1, 2048]}
    params = {"inputs": [spec], "seeds": [0], "out_dir": str(folder), "model": str(model)}
    (path,) = engine.request("make_inputs", params, timeout=120)["paths"]
    return str(path)


def _peak(engine: EngineSession) -> float:
    """The most memory that the process has had so far, in multiples of the weights."""
    return _status(engine, "VmHWM") / (MEGABYTES * 10**6)


def _data(engine: EngineSession) -> int:
    """Size of the process's data segment in bytes, which ``limit_memory`` limits."""
    return _status(engine, "VmData")


def _status(engine: EngineSession, field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{engine.pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def test_onnx_runtime_needs_few_copies(archive: Path, engine_logs: Path, tmp_path: Path) -> None:
    with start("onnx", engine_logs / "peaks-onnx.log") as engine:
        before = _peak(engine)
        peaks: dict[str, float] = {}

        def ask(method: str, **params: Any) -> dict[str, Any]:
            answer = engine.request(method, params, timeout=120)
            peaks[method] = round(_peak(engine) - before, 2)
            return answer

        ask("inspect", path=str(archive))
        model = str(tmp_path / "prepared.onnx")
        ask("prepare", path=str(archive), input_shapes={}, out_path=model)
        given = _inputs(engine, tmp_path, Path(model))
        expected = str(tmp_path / "expected.npz")
        ask("rewrite", path=model, lanes=16, out_path=str(tmp_path / "rewritten.onnx"))
        ask("run", path=model, threads=1, inputs=given, outputs=expected)
        runs = str(tmp_path / "runs")
        ask("run_perturbed", path=model, inputs=[given], folders=[runs], threads=1, seconds=20)
        ask("compare", expected=expected, actual=expected, model=model, runs=runs)
        ask("time", path=model, threads=1, inputs=given, number=1, repeat=1)
        ask("profile", path=model, threads=1, inputs=given, repeat=1)
    assert max(peaks.values()) < MOST, peaks
    assert peaks["inspect"] < 0.5, peaks


@pytest.mark.parametrize(("name", "most"), [("relax", MOST + 1.5), ("relay", MOST + 2)])
def test_tvm_needs_few_copies(large: Path, engine_logs: Path, tmp_path: Path, name: str, most: float) -> None:
    with start(name, engine_logs / f"peaks-{name}.log") as engine:
        before = _peak(engine)
        engine.request("check", {"model": str(large)}, timeout=100)
        checked = _peak(engine) - before
        build = {"target": f"llvm -mcpu={engine.hello['mcpu']}", "tuner": None, "records": None, "options": {}}
        asking.build(engine, build, tmp_path / "build", threads=1, model=str(large))
        compiled = _peak(engine) - before
    # The weights as imported stay for the next build, as the model is small enough. Relay keeps transposed weights
    # beside them, relax those in panels. Code of TVM takes memory as well.
    assert checked < (1.5 if name == "relax" else 3.5)
    assert compiled < most


@pytest.mark.parametrize(
    ("name", "method"), [("onnx", "run"), ("onnx", "run_perturbed"), ("relax", "check"), ("relay", "check")]
)
def test_large_weights_beyond_the_limit_are_refused_and_the_engine_goes_on(
    large: Path,
    prepared: Path,
    inputs: list[Path],
    reference: EngineSession,
    engine_logs: Path,
    tmp_path: Path,
    name: str,
    method: str,
) -> None:
    def params(model: Path, given: str) -> dict[str, Any]:
        if method == "check":
            return {"model": str(model)}
        run = {"path": str(model), "threads": 1}
        if method == "run":
            return {**run, "inputs": given, "outputs": str(tmp_path / "out.npz")}
        return {**run, "inputs": [given], "folders": [str(tmp_path / "runs")], "seconds": 20}

    of_large = _inputs(reference, tmp_path, large)
    with start(name, engine_logs / f"limited-{name}-{method}.log") as engine:
        used = _data(engine)
        # What an engine loads for its first model takes some 45 MB.
        engine.limit_memory(used + MEGABYTES * 8 // 10 * 10**6)
        with pytest.raises(errors.EngineError) as caught:
            engine.request(method, params(large, of_large), timeout=100)
        assert failures.needs_memory(caught.value), caught.value
        assert _data(engine) - used < MEGABYTES // 4 * 10**6, "the weights are still in memory"
        engine.request(method, params(prepared, str(inputs[0])), timeout=100)


@pytest.mark.parametrize(("name", "method"), [("onnx", "run"), ("relay", "compile"), ("relax", "compile")])
def test_a_constant_beyond_the_limit_is_refused_and_the_engine_goes_on(
    tmp_path: Path,
    engine_logs: Path,
    reference: EngineSession,
    prepared: Path,
    inputs: list[Path],
    name: str,
    method: str,
) -> None:
    (tmp_path / "hostile.onnx").write_bytes(models.large_constant(SIZE))
    given = asking.make_inputs(reference, [{"name": "x", "dtype": "float32", "shape": [1, 1]}], tmp_path)
    build: dict[str, Any] = {"target": "llvm", "tuner": None, "records": None, "options": {}, "threads": 1}

    def asked(model: Path, given: Path) -> dict[str, Any]:
        run = {"path": str(model), "inputs": str(given), "threads": 1, "outputs": str(tmp_path / "outputs.npz")}
        return run if method == "run" else {**build, "model": str(model), "out_dir": str(tmp_path / "build")}

    with start(name, engine_logs / f"memory-{name}.log") as engine:
        engine.limit_memory(_data(engine) + 400 * 1024**2)
        with pytest.raises(errors.EngineError) as caught:
            engine.request(method, asked(tmp_path / "hostile.onnx", given), timeout=100)
        assert failures.needs_memory(caught.value), caught.value
        engine.request(method, asked(prepared, inputs[0]), timeout=100)
