"""What tests of engines ask for, whichever engine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support.tuner.engines.fixtures import interpreter, workload
from tuner.host import catalogue
from tuner.host.session import EngineSession

MEASURE = {"number": 1, "repeat": 1, "min_repeat_ms": 1, "timeout": 20.0, "n_parallel": 2}

Params = dict[str, Any]
Trials = list[dict[str, Any]]


def tune(
    engine: EngineSession,
    params: Params,
    spool: Path,
    *,
    on_event: Callable[[str, dict[str, Any]], None] = lambda _kind, _data: None,
    **more: Any,
) -> tuple[dict[str, Any], Trials]:
    """A round of four trials, or what ``params`` and ``more`` say; its answer and its trials."""
    trials: Trials = []

    def keep(kind: str, data: dict[str, Any]) -> None:
        if kind == "trial":
            # The engine may be further already; what it told is there.
            assert json.dumps(data, separators=(",", ":")) in spool.read_text().splitlines()
            trials.append(data)
        on_event(kind, data)

    request = {
        "trials": 4,
        "measure": MEASURE,
        "options": {},
        "history": None,
        "spool": str(spool),
        "seconds": None,
        "first_trial": 0,
        **params,
        **more,
    }
    return engine.request("tune", request, timeout=120, on_event=keep), trials


def good_lines(engine: EngineSession, params: Params, spool: Path, *, trials: int = 2, **more: Any) -> list[str]:
    """Native lines of the trials of a round that succeeded.

    None failed, but builds on a busy machine may take longer than the limit that adapts to earlier ones.
    """
    _, measured = tune(engine, params, spool, trials=trials, **more)
    assert {trial["error"] for trial in measured} <= {None, "build_timeout"}, measured
    good = [str(trial["schedule"]) for trial in measured if not trial["error"]]
    assert good, measured
    return good


def trial_lines(engine: EngineSession, place: Params, folder: Path, *, trials: int = 2) -> list[str]:
    """Native lines of some trials of each task of a network."""
    tasks = engine.request("extract", {**place, "out_dir": str(folder)}, timeout=120)["tasks"]
    spool = folder / "spool.jsonl"
    return [line for task in tasks for line in good_lines(engine, workload(place, task, folder), spool, trials=trials)]


def prepare(reference: EngineSession, content: bytes, folder: Path, **shapes: list[int]) -> tuple[Path, Trials]:
    """The prepared model, and the specs of its inputs."""
    (folder / "model.onnx").write_bytes(content)
    prepared = folder / "prepared.onnx"
    params = {"path": str(folder / "model.onnx"), "input_shapes": shapes, "out_path": str(prepared)}
    return prepared, reference.request("prepare", params, timeout=60)["inputs"]


def quantize(
    reference: EngineSession, model: Path, inputs: Iterable[Path], out: Path, *, method: str = "quantize", **more: Any
) -> dict[str, Any]:
    params = {"path": str(model), "inputs": [str(each) for each in inputs], "out_path": str(out), "threads": 1}
    return reference.request(method, {**params, "seconds": 60, **more}, timeout=120)


def narrow(reference: EngineSession, model: Path, inputs: Iterable[Path], out: Path, **more: Any) -> dict[str, Any]:
    return quantize(reference, model, inputs, out, method="narrow", **more)


def make_inputs(reference: EngineSession, specs: Trials, folder: Path, seed: int = 0) -> Path:
    made = {"inputs": specs, "seeds": [seed], "out_dir": str(folder)}
    [path] = reference.request("make_inputs", made, timeout=60)["paths"]
    return Path(path)


def assert_every_build_agrees(
    relax: EngineSession, reference: EngineSession, place: Params, content: bytes, folder: Path
) -> None:
    """Compare rewritten builds with the reference: without records, with those of every operator, and for a CPU with
    shorter vectors."""
    model, specs = prepare(reference, content, folder)
    inputs = make_inputs(reference, specs, folder)
    own = {**place, "model": str(model), "rewrite": True}
    lines = trial_lines(relax, own, folder, trials=4)
    records = write_lines(folder / "records.jsonl", [line for line in lines if line])
    for number, more in enumerate(({}, {"records": records}, {"target": "llvm -mcpu=haswell"})):
        bundle = folder / f"bundle-{number}"
        answer = relax.request("compile", {**own, "records": None, "out_dir": str(bundle), **more}, timeout=120)
        assert bool(answer["records"]) == ("records" in more)
        assert agrees(relax, bundle, reference, model, inputs, folder)


def build(engine: EngineSession, place: Params, out: Path, **more: Any) -> dict[str, Any]:
    """The answer to a request for a build, without records unless ``more`` names some."""
    return engine.request("compile", {**place, "records": None, "out_dir": str(out), **more}, timeout=200)


def build_and_compare(
    engine: EngineSession,
    place: Params,
    reference: EngineSession,
    content: bytes,
    folder: Path,
    *,
    seed: int = 0,
    **more: Any,
) -> Trials:
    """What the reference says of each output of a network that was prepared, and built in ``folder / "built"``."""
    prepared, specs = prepare(reference, content, folder)
    build(engine, place, folder / "built", model=str(prepared), **more)
    inputs = make_inputs(reference, specs, folder, seed)
    actual = run(engine, folder / "built", inputs, folder / "actual.npz")
    outputs = compare_with_model(reference, folder / "model.onnx", inputs, actual)
    assert outputs
    return outputs


def run(engine: EngineSession, bundle: Path, inputs: Path, outputs: Path) -> Path:
    """Run a bundle on one thread."""
    params = {"bundle": str(bundle), "inputs": str(inputs), "outputs": str(outputs), "threads": 1}
    engine.request("run", params, timeout=60)
    return outputs


def agrees(
    engine: EngineSession, bundle: Path, reference: EngineSession, model: Path | str, inputs: Path, folder: Path
) -> bool:
    """Whether what a bundle computes is what ONNX Runtime makes of the model, within the usual tolerances."""
    outputs = compare_with_model(reference, model, inputs, run(engine, bundle, inputs, folder / "actual.npz"))
    return bool(outputs) and all(output["passed"] for output in outputs)


def refusal(engine: EngineSession, method: str, params: Params) -> errors.EngineRequestFailed:
    """Of a request that must fail."""
    with pytest.raises(errors.EngineRequestFailed) as caught:
        engine.request(method, params, timeout=60)
    return caught.value


def compare(reference: EngineSession, expected: Path, actual: Path, **more: Any) -> Trials:
    """What the reference says of each output."""
    params = {"expected": str(expected), "actual": str(actual), **more}
    outputs: Trials = reference.request("compare", params, timeout=60)["outputs"]
    return outputs


def compare_with_model(
    reference: EngineSession, model: Path | str, inputs: Path, actual: Path, /, **more: Any
) -> Trials:
    """Likewise, of what ONNX Runtime makes of the model."""
    expected = actual.with_name("expected.npz")
    params = {"path": str(model), "inputs": str(inputs), "outputs": str(expected), "threads": 1}
    reference.request("run", params, timeout=60)
    return compare(reference, expected, actual, **more)


def python(engine: str, *arguments: object, folder: Path = catalogue.ROOT) -> str:
    """What the Python of an engine's environment prints; ``folder`` is where it runs."""
    command = [str(interpreter(engine)), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


_EQUAL = """
import sys
import numpy as np
one, other = map(np.load, sys.argv[1:])
assert one.files == other.files
assert all(one[name].dtype == other[name].dtype and one[name].shape == other[name].shape for name in one)
assert all(one[name].tobytes() == other[name].tobytes() for name in one)
"""


def assert_same_bytes(one: Path, other: Path) -> None:
    """Two ``.npz`` files have the same arrays, bit for bit."""
    inside("onnx", _EQUAL, one, other)


def inside(engine: str, script: str, *arguments: object, folder: Path = catalogue.ROOT) -> str:
    """What a script prints in the environment of an engine; ``folder`` is where it runs, and imports from."""
    return python(engine, "-c", script, *arguments, folder=folder)


def told_inside(engine: str, script: str, *arguments: object) -> Any:
    """What a script prints last, as JSON."""
    return json.loads(inside(engine, script, *arguments).splitlines()[-1])


def installed(engine: str, path: str) -> Path:
    """Where a package of the engine has this file or folder."""
    return interpreter(engine).parents[1] / "lib/python3.11/site-packages" / path


def with_numpy_alone(packages: Path) -> dict[str, str]:
    """The environment of a process that has the client and numpy, in a new folder, and nothing else of ours."""
    packages.mkdir()
    (packages / "tunesmith").symlink_to(catalogue.ROOT / "tunesmith")
    for name in ("numpy", "numpy.libs"):
        (packages / name).symlink_to(installed("onnx", name))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TUNESMITH"))}
    return {**clean, "PYTHONPATH": str(packages), "PYTHONSAFEPATH": "1"}


def write_lines(path: Path, lines: Iterable[str]) -> str:
    """The path of a file of native lines."""
    path.write_text("".join(f"{line.rstrip()}\n" for line in lines))
    return str(path)
