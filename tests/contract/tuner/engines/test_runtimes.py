"""Bundles that run with ONNX Runtime or OpenVINO: in that where it is installed, else in the library."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from domain.artifacts import Runtime, Variant
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import NOTHING_TUNED, Twin, home, manifest
from tests.support.tunesmith.commands import parsed, run
from tuner.host.session import EngineSession
from tuner.results import bundle
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
        "imported": sorted({"onnxruntime", "openvino"} & set(sys.modules)),
        "seconds": sum(seconds for _, seconds in profile)}))
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A bundle that runs with a runtime."""

    path: Path
    runtime: Runtime
    options: dict[str, str]
    version: str

    @property
    def engine(self) -> str:
        return {"onnxruntime": "onnx"}.get(self.runtime, self.runtime)

    def run(self, inputs: Path, outputs: Path, *, path: Path | None = None, **options: Any) -> Any:
        """What a session in an environment with the runtime says; its outputs are written."""
        return json.loads(asking.inside(self.engine, RUN, path or self.path, inputs, outputs, json.dumps(options)))


@pytest.fixture(
    scope="module",
    params=[
        (Runtime.ONNXRUNTIME, {}),
        (
            Runtime.ONNXRUNTIME,
            {
                "graph_optimization_level": "extended", "enable_cpu_mem_arena": "0",
                "session.intra_op.allow_spinning": "0",
            },
        ),
        (Runtime.OPENVINO, {"INFERENCE_PRECISION_HINT": "f32"}),
    ],
    ids=["onnxruntime", "options", "openvino"],
)  # fmt: skip
def case(
    request: pytest.FixtureRequest, relay_twin: Twin, prepared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Case:
    runtime, options = request.param
    folder = tmp_path_factory.mktemp("bundle")
    engine = {"onnxruntime": "onnx"}.get(runtime, runtime)
    script = f"import {runtime}; print({runtime}.__version__.partition('-')[0])"
    version = asking.inside(engine, script).strip()
    variant = Variant.OPENVINO if runtime is Runtime.OPENVINO else Variant.ONNXRUNTIME
    other = OtherRuntime(name=runtime, version=version, model=bundle.PREPARED, threads=2, options=options)
    facts = manifest(relay_twin, model_digest="ab" * 32, threads=2, runtime=other)
    timings = {variant: of_samples([1e-3] * 3), Variant.UNTUNED: of_samples([2e-3] * 3)}
    report = replace(
        NOTHING_TUNED, timings=timings, runtime=runtime, runtime_variant=variant, runtime_version=version,
        runtime_model=bundle.PREPARED, runtime_options=options,
    )  # fmt: skip
    bundle.write(folder / "b.tar", compiled=relay_twin.untuned, manifest=facts, report=report, model=prepared)
    bundle.open_bundle(folder / "b.tar", folder / "unpacked")
    return Case(path=folder / "b.tar", runtime=runtime, options=options, version=version)


@pytest.mark.parametrize("unpacked", [False, True])
def test_the_runtime_runs_the_bundle_where_it_is_installed(
    case: Case, reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path, unpacked: bool
) -> None:
    told = case.run(inputs[0], tmp_path / "y.npz", path=case.path.with_name("unpacked") if unpacked else None)
    assert told["runtime"] == f"{case.runtime} {case.version}"
    assert told["reason"] == f"{told['runtime']} was faster than the library in the benchmark"
    assert (told["threads"], told["imported"], told["metadata"]["model"]) == (2, [case.runtime], "ab" * 32)
    assert told["inputs"] == [["image", [1, 3, 16, 16], "tensor(float)", "float32"]]
    assert told["kernels"] > 1
    assert 0 < told["seconds"] < 1
    [output] = asking.compare_with_model(reference, prepared, inputs[0], tmp_path / "y.npz")
    assert output["passed"]
    assert output["max_abs"] == 0 or case.runtime is Runtime.OPENVINO or case.options


def test_the_library_runs_it_on_demand(case: Case, inputs: list[Path], tmp_path: Path) -> None:
    told = case.run(inputs[0], tmp_path / "y.npz", runtime="library", threads=1)
    assert (told["runtime"], told["reason"], told["threads"]) == ("library", "the program asked for it", 1)
    assert told["imported"] == []
    assert "relay, TVM" in told["metadata"]["toolchain"]
    assert case.run(inputs[0], tmp_path / "y.npz", pin=True)["runtime"] == "library"
    for options, said in (
        ({"runtime": "tensorrt"}, "ValueError: runtime must be library, onnxruntime or openvino, not 'tensorrt'"),
        ({"runtime": case.runtime, "pin": True}, "ValueError: pin is an option of the library"),
        ({"runtime": case.runtime, "digest": "0" * 64}, "LoadError: the sha256 of"),
    ):
        with pytest.raises(AssertionError, match=said):
            case.run(inputs[0], tmp_path / "y.npz", **options)


def test_a_damaged_model_is_refused_and_not_replaced_by_the_library(
    case: Case, inputs: list[Path], prepared: Path, tmp_path: Path
) -> None:
    content = case.path.read_bytes()
    place = content.index(prepared.read_bytes()) + 50
    (tmp_path / "changed.tar").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(AssertionError, match=r"LoadError: the sha256 of prepared\.onnx is"):
        case.run(inputs[0], tmp_path / "y.npz", path=tmp_path / "changed.tar")


def test_options_that_this_release_does_not_know_leave_the_library(
    case: Case, inputs: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "later"
    facts = bundle.open_bundle(case.path, folder)
    later = json.loads((folder / "manifest.json").read_text())
    later["runtime"]["options"] = {"of_a_later_release": "1"}
    (folder / "manifest.json").write_text(json.dumps(later))
    told = case.run(inputs[0], tmp_path / "y.npz", path=folder, threads=facts.threads)
    assert told["runtime"] == "library"
    assert "does not know the option 'of_a_later_release" in told["reason"]


def test_without_the_runtime_the_library_runs_it_and_says_so(case: Case, inputs: list[Path], tmp_path: Path) -> None:
    clean = asking.with_numpy_alone(tmp_path / "packages")

    def alone(**options: Any) -> subprocess.CompletedProcess[str]:
        arguments = [case.path, inputs[0], tmp_path / "y.npz", json.dumps(options)]
        return subprocess.run(
            [sys.executable, "-c", RUN, *map(str, arguments)],
            cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    done = alone()
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["runtime"] == "library"
    assert told["reason"].startswith(
        f"{case.runtime} was faster in the benchmark, but {case.runtime} cannot be imported (No "
    )
    assert told["reason"].endswith(f"; pip install {case.runtime}=={case.version}")
    refused = alone(runtime=case.runtime)
    assert refused.returncode == 1
    assert "LoadError" in refused.stderr
    assert f"{case.runtime} cannot be imported" in refused.stderr


def test_the_command_runs_it_in_the_sandbox_and_says_what_ran(
    case: Case, inputs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESMITH_HOME", str(home()))
    found = {}
    for option in ([], ["--runtime", "library"]):
        outputs = tmp_path / f"{len(option)}.npz"
        told = parsed(capsys, "run", case.path, "--inputs", inputs[0], "-o", outputs, "--repeat", 2, *option)
        found[told["runtime"].partition(" ")[0]] = told["published"]["median"]
    assert found == {case.runtime: 1e-3, "library": 2e-3}
    status, _, err = run(capsys, "run", case.path)
    assert (status, f"ran with {case.runtime} " in err) == (0, True), err
    status, out, _ = run(capsys, "verify", case.path)
    assert (status, "on prepared.onnx, else the library" in out) == (0, True)
