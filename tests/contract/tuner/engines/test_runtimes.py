"""A bundle that runs with ONNX Runtime: in that where it is installed, else in the library."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from domain.artifacts import Runtime, Variant
from domain.models import TensorSpec
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import NOTHING_TUNED, Twin, home
from tests.support.tunesmith.commands import parsed, run
from tuner.host.session import EngineSession
from tuner.results import bundle, manifest
from tuner.results.manifest import OtherRuntime
from tuner.results.timing import of_samples

pytestmark = pytest.mark.engine

RUN = """
import json, os, sys
import numpy as np
from tunesmith.runtime import InferenceSession, LoadError, RunError
bundle, inputs, outputs, options = sys.argv[1:]
feeds = dict(np.load(inputs))
with InferenceSession(bundle, **json.loads(options)) as session:
    names = [output.name for output in session.get_outputs()]
    results = session.run(None, feeds)
    np.savez(outputs, **dict(zip(names, results)))
    mine = np.empty_like(results[0])
    assert session.run(names, feeds, out={names[0]: mine})[0] is mine
    assert mine.tobytes() == results[0].tobytes()
    for wrong in ({}, {"image": feeds["image"][:, :2]}, {"image": feeds["image"].astype(np.float64)}):
        try:
            session.run(None, wrong)
        except ValueError:
            continue
        raise AssertionError(wrong)
    assert len(session.time(feeds, number=2, repeat=3)) == 3
    profile = session.profile(feeds)
    child = os.fork()
    if not child:
        # The threads of the session are not in this process.
        again = session.run(None, feeds)
        os._exit(0 if again[0].tobytes() == results[0].tobytes() else 1)
    assert os.waitpid(child, 0)[1] == 0
    print(json.dumps({"runtime": session.runtime, "reason": session.reason, "threads": session.threads,
        "inputs": session.get_inputs(), "metadata": session.metadata, "kernels": len(profile),
        "imported": "onnxruntime" in sys.modules, "seconds": sum(seconds for _, seconds in profile)}))
"""


@pytest.fixture(scope="module")
def path(relay_twin: Twin, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    version = json.loads(asking.inside("onnx", "import json, onnxruntime; print(json.dumps(onnxruntime.__version__))"))
    facts = manifest.Manifest(
        model_digest="ab" * 32, model_name="small", variant="untuned", target=relay_twin.target, threads=2,
        device_key="any", toolchain=relay_twin.session.hello["toolchain"], precision="f32", created_by="a test",
        inputs=(TensorSpec(name="image", dtype="float32", shape=(1, 3, 16, 16)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(1, 5)),),
        runtime=OtherRuntime(name="onnxruntime", version=version, model=bundle.PREPARED, threads=2),
    )  # fmt: skip
    timings = {Variant.REFERENCE: of_samples([1e-3] * 3), Variant.UNTUNED: of_samples([2e-3] * 3)}
    report = replace(NOTHING_TUNED, timings=timings, runtime=Runtime.ONNXRUNTIME, runtime_version=version)
    compiled = relay_twin.untuned
    bundle.write(folder / "b.tar", compiled=compiled, manifest=facts, report=report, prepared=prepared)
    bundle.open_bundle(folder / "b.tar", folder / "unpacked")
    return folder / "b.tar"


def run_inside(path: Path, inputs: Path, outputs: Path, **options: Any) -> Any:
    """What a session in an environment with ONNX Runtime says; its outputs are written."""
    return json.loads(asking.inside("onnx", RUN, path, inputs, outputs, json.dumps(options)))


@pytest.mark.parametrize("unpacked", [False, True])
def test_onnx_runtime_runs_the_bundle_where_it_is_installed(
    path: Path, reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path, unpacked: bool
) -> None:
    told = run_inside(path.with_name("unpacked") if unpacked else path, inputs[0], tmp_path / "y.npz")
    assert told["runtime"].startswith("onnxruntime 1.")
    assert told["reason"] == f"{told['runtime']} was faster than the library in the benchmark"
    assert (told["threads"], told["imported"], told["metadata"]["model"]) == (2, True, "ab" * 32)
    assert told["inputs"] == [["image", [1, 3, 16, 16], "tensor(float)", "float32"]]
    assert told["kernels"] > 1
    assert 0 < told["seconds"] < 1
    [output] = asking.compare_with_model(reference, prepared, inputs[0], tmp_path / "y.npz")
    assert output["max_abs"] == 0


def test_the_library_runs_it_on_demand(path: Path, inputs: list[Path], tmp_path: Path) -> None:
    told = run_inside(path, inputs[0], tmp_path / "y.npz", runtime="library", threads=1)
    assert (told["runtime"], told["reason"], told["threads"]) == ("library", "the program asked for it", 1)
    assert not told["imported"]
    assert "relay, TVM" in told["metadata"]["toolchain"]
    assert run_inside(path, inputs[0], tmp_path / "y.npz", pin=True)["runtime"] == "library"
    for options, said in (
        ({"runtime": "openvino"}, "ValueError: runtime must be library or onnxruntime, not 'openvino'"),
        ({"runtime": "onnxruntime", "pin": True}, "ValueError: pin is an option of the library"),
        ({"runtime": "onnxruntime", "digest": "0" * 64}, "LoadError: the sha256 of"),
    ):
        with pytest.raises(AssertionError, match=said):
            run_inside(path, inputs[0], tmp_path / "y.npz", **options)


def test_a_damaged_model_is_refused_and_not_replaced_by_the_library(
    path: Path, inputs: list[Path], prepared: Path, tmp_path: Path
) -> None:
    content = path.read_bytes()
    place = content.index(prepared.read_bytes()) + 50
    (tmp_path / "changed.tar").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(AssertionError, match=r"LoadError: the sha256 of prepared\.onnx is"):
        run_inside(tmp_path / "changed.tar", inputs[0], tmp_path / "y.npz")


def test_without_onnx_runtime_the_library_runs_it_and_says_so(path: Path, inputs: list[Path], tmp_path: Path) -> None:
    clean = asking.with_numpy_alone(tmp_path / "packages")

    def alone(**options: Any) -> subprocess.CompletedProcess[str]:
        arguments = [path, inputs[0], tmp_path / "y.npz", json.dumps(options)]
        return subprocess.run(
            [sys.executable, "-c", RUN, *map(str, arguments)],
            cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    done = alone()
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["runtime"] == "library"
    assert told["reason"].startswith(
        "ONNX Runtime was faster in the benchmark, but onnxruntime cannot be imported (No "
    )
    assert told["reason"].endswith("; pip install onnxruntime")
    refused = alone(runtime="onnxruntime")
    assert refused.returncode == 1
    assert "LoadError" in refused.stderr
    assert "onnxruntime cannot be imported" in refused.stderr


def test_the_command_runs_it_in_the_sandbox_and_says_what_ran(
    path: Path, inputs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESMITH_HOME", str(home()))
    found = {}
    for option in ([], ["--runtime", "library"]):
        outputs = tmp_path / f"{len(option)}.npz"
        told = parsed(capsys, "run", path, "--inputs", inputs[0], "-o", outputs, "--repeat", 2, *option)
        found[told["runtime"].partition(" ")[0]] = told["published"]["median"]
    assert found == {"onnxruntime": 1e-3, "library": 2e-3}
    status, _, err = run(capsys, "run", path)
    assert (status, "ran with onnxruntime 1." in err) == (0, True), err
    status, out, _ = run(capsys, "verify", path)
    assert (status, "on prepared.onnx, else the library" in out) == (0, True)
