"""Jobs over real engines whose bundles TVM loads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from domain.artifacts import Artifact, Runtime
from domain.jobs import BundleFormat, Tuner
from tests.contract.tuner.engines.test_libraries import PLAIN
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import start
from tests.support.worker.fixtures import Bench
from tests.support.worker.real import publish
from tuner.results import bundle

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("real_engines", "timed_once")]


def run(bench: Bench, tuner: Tuner, form: BundleFormat) -> Artifact:
    place = {"threads": 1, "runtimes": (Runtime.TVM,), "input_shapes": {"image": (1, 3, 16, 16)}}
    job_id = bench.job(trials=1, content=models.small_network(), tuner=tuner, bundle_format=form, **place)
    found = publish(bench, job_id, benchmark_seconds=2.0)
    assert found.verified
    return found


@pytest.mark.parametrize("tuner", [Tuner.AUTOTVM, Tuner.METASCHEDULE])
def test_plain_tvm_computes_the_models_results_from_a_bundle(bench: Bench, tmp_path: Path, tuner: Tuner) -> None:
    found = run(bench, tuner, BundleFormat.TVM)
    bundle.open_bundle(bench.blobs.path(found.digest), tmp_path / "opened")
    checked = json.loads((tmp_path / "opened" / "evidence.json").read_text())["format_verification"]
    assert (checked["file"], checked["verification"]["passed"], checked["not_run"]) == ("mod.so", True, "")
    with start("onnx", tmp_path / "onnx.log") as reference:
        model, specs = asking.prepare(reference, models.small_network(), tmp_path, image=[1, 3, 16, 16])
        inputs = asking.make_inputs(reference, specs, tmp_path, seed=7)
        actual = tmp_path / "actual.npz"
        asking.inside(tuner.engine, PLAIN[tuner.engine], tmp_path / "opened", inputs, actual, "1", folder=tmp_path)
        [output] = asking.compare_with_model(reference, model, inputs, actual)
    assert output["passed"]


def test_a_library_that_is_linked_elsewhere_is_verified_linked_here(bench: Bench) -> None:
    checked = run(bench, Tuner.METASCHEDULE, BundleFormat.SYSTEM_LIB).report.format_verification
    assert checked is not None
    assert (checked.file, checked.not_run) == ("mod.a", "")
    assert checked.verification is not None
    assert checked.verification.passed
