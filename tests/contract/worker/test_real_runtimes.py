"""Jobs over real engines that another runtime wins, and what runs their bundles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from domain.artifacts import Artifact, Runtime, Variant
from domain.jobs import Precision, Tuner, TunerOptions
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import home
from tests.support.worker.fixtures import Bench
from tests.support.worker.real import publish
from tuner.host import catalogue, environments
from tuner.results import bundle

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("real_engines")]

RUN = """
import json, sys
import numpy as np
from tunesmith.runtime import InferenceSession
x = np.random.default_rng(0).random((1, 61, 33, 33), np.float32)
with InferenceSession(sys.argv[1]) as session:
    y = session.run(None, {"x": x})[0]
    print(json.dumps({"runtime": session.runtime, "reason": session.reason, "sum": float(y.sum())}))
"""


@pytest.fixture(autouse=True)
def _optional_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in catalogue.OPTIONAL.values():
        monkeypatch.setenv(environments.variable(spec), str(environments.interpreter(spec, home())))


def run(bench: Bench, *runtimes: Runtime, **request: Any) -> Artifact:
    wanted = {"content": models.odd_convolution(), "tuner": Tuner.METASCHEDULE} | request
    job_id = bench.job(
        trials=1, threads=1, tuner_options=TunerOptions(rewrite=False), runtimes=(Runtime.TVM, *runtimes), **wanted
    )
    return publish(bench, job_id, benchmark_seconds=10.0)


@pytest.mark.parametrize(
    ("runtime", "engine", "variants"),
    [
        (Runtime.ONNXRUNTIME, "onnx", {Variant.REFERENCE, Variant.ONNXRUNTIME}),
        (Runtime.OPENVINO, "openvino", {Variant.OPENVINO}),
    ],
)
def test_a_faster_runtime_runs_the_bundle_where_it_can_be_imported(
    bench: Bench, tmp_path: Path, runtime: Runtime, engine: str, variants: set[Variant]
) -> None:
    found = run(bench, runtime)
    report = found.report
    assert report.runtime is runtime
    assert report.fastest in variants
    assert report.fastest is Variant.REFERENCE or report.verifications[report.fastest].is_complete
    assert report.timings[report.fastest].median < report.timings[report.published].median
    winner = next(each for each in report.portfolio if each.verdict.startswith("runs the bundle"))
    assert winner.name.startswith(str(runtime))
    path = bench.blobs.path(found.digest)
    manifest = bundle.open_bundle(path, tmp_path / "opened")
    assert manifest.runtime is not None
    assert (manifest.runtime.name, manifest.runtime.options) == (runtime, report.runtime_options)
    assert manifest.files.keys() >= {"libmodel.so", manifest.runtime.model}
    assert f"pip install {manifest.runtime.requirement}" in (tmp_path / "opened" / "README.md").read_text()
    told = json.loads(asking.inside(engine, RUN, path))
    assert told["runtime"] == f"{runtime} {report.runtime_version}"
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path)], cwd=tmp_path, env=asking.with_numpy_alone(tmp_path / "packages"),
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    alone = json.loads(done.stdout)
    assert alone["runtime"] == "library"
    assert f"{runtime} cannot be imported" in alone["reason"]
    assert told["sum"] == pytest.approx(alone["sum"], rel=1e-4)


CPU = Path("/proc/cpuinfo").read_text()


@pytest.mark.parametrize(
    ("precision", "flag", "names"),
    [
        (Precision.BF16, "avx512_bf16", {"openvino, bf16"}),
        (Precision.INT8, "avx512_vnni", {"onnxruntime, int8", "openvino, int8"}),
    ],
)
def test_runtimes_compete_in_the_precision_of_the_job(
    bench: Bench, tmp_path: Path, precision: Precision, flag: str, names: set[str]
) -> None:
    if flag not in CPU:
        pytest.skip(f"the CPU has no {flag}")
    found = run(
        bench, Runtime.ONNXRUNTIME, Runtime.OPENVINO, precision=precision, content=models.small_network(),
        tuner=Tuner.METASCHEDULE, input_shapes={"image": (1, 3, 16, 16)},
    )  # fmt: skip
    report = found.report
    contenders = {each.name: each for each in report.portfolio if each.name in names}
    assert contenders.keys() == names
    for each in contenders.values():
        assert (each.precision, each.verified) == (precision, True), each.verdict
    assert found.precision == report.precision == precision
    manifest = bundle.open_bundle(bench.blobs.path(found.digest), tmp_path / "opened")
    if manifest.runtime is None:
        assert report.runtime is Runtime.TVM
    else:
        assert manifest.runtime.precision == report.runtime_precision
