"""Jobs of several sizes over real engines: their bundles as programs run them, in sizes and between them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domain import sizes
from domain.artifacts import Artifact
from domain.jobs import JobState, Tuner
from domain.models import ModelFormat
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.worker.fixtures import Bench
from tests.support.worker.real import run_job
from tuner.host.inspection import Inspector
from tuner.host.settings import TunerSettings
from tuner.results import bundle

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("real_engines", "timed_once")]

COMPARED = """
import json, sys
import numpy as np
import onnxruntime
from tunesmith.runtime import InferenceSession

bundle, model, shapes = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
ours, theirs = InferenceSession(bundle), onnxruntime.InferenceSession(model)
generator = np.random.default_rng(0)
errors = []
for each in shapes:
    feed = {}
    for value in theirs.get_inputs():
        shape = each[value.name]
        whole = "int64" in value.type
        feed[value.name] = generator.integers(0, 9, shape) if whole else generator.random(shape, np.float32)
        if value.name == "mask":
            feed[value.name] = np.ones(shape, np.float32)
    for mine, other in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
        assert mine.shape == other.shape, (mine.shape, other.shape)
        errors.append(float(np.abs(mine - other).max() / np.abs(other).max()))
print(json.dumps({"worst": max(errors), "sizes": ours.sizes, "inputs": [value.shape for value in ours.get_inputs()]}))
"""


def run(bench: Bench, content: bytes, shapes: dict[str, Any], **request: Any) -> str:
    path = bench.home / "model.onnx"
    path.write_bytes(content)
    inspected = Inspector.installed(
        ModelFormat.ONNX, bench.home, TunerSettings(), log_path=bench.home / "inspect.log"
    ).inspect(path)
    expanded = sizes.expand(inspected.inputs, shapes)
    job_id = bench.job(content=content, facts=inspected, trials=len(expanded), threads=1, sizes=expanded, **request)
    run_job(bench, job_id, benchmark_seconds=2.0)
    return job_id


def compared(bench: Bench, artifact: Artifact, shapes: list[dict[str, list[int]]], folder: Path) -> dict[str, Any]:
    path = folder / "bundle.tar"
    path.write_bytes(bench.blobs.path(artifact.digest).read_bytes())
    arguments = (path, bench.home / "model.onnx", json.dumps(shapes))
    answer: dict[str, Any] = json.loads(asking.inside("onnx", COMPARED, *arguments))
    return answer


@pytest.mark.parametrize("tuner", [Tuner.AUTOTVM, Tuner.METASCHEDULE])
def test_batches_between_the_sizes_are_run_in_parts(bench: Bench, tmp_path: Path, tuner: Tuner) -> None:
    job_id = run(bench, models.small_network(), {"image": [[1, 4], 3, 16, 16]}, tuner=tuner)
    assert bench.get(job_id).state is JobState.SUCCEEDED, bench.failure(job_id)
    artifact = bench.artifact(job_id)
    assert artifact.verified
    shapes = [{"image": [batch, 3, 16, 16]} for batch in range(1, 12)]
    found = compared(bench, artifact, shapes, tmp_path)
    assert found["worst"] < 1e-5
    assert (found["sizes"], found["inputs"]) == ([{"batch": 1}, {"batch": 4}], [["batch", 3, 16, 16]])
    manifest = bundle.open_bundle(tmp_path / "bundle.tar", tmp_path / "opened")
    assert manifest.outputs[0].shape == ("batch", 5)


def test_lengths_between_the_sizes_are_padded_where_the_user_says_so(bench: Bench, tmp_path: Path) -> None:
    shapes = {"ids": [[1, 2], [8, 16]]}
    job_id = run(bench, models.masked_sentences(), shapes, padding={"ids": 0.0, "mask": 0.0})
    assert bench.get(job_id).state is JobState.SUCCEEDED, bench.failure(job_id)
    wanted = [
        {name: [batch, length] for name in ("ids", "mask")} for batch in (1, 2, 3, 7) for length in (1, 5, 8, 9, 16)
    ]
    assert compared(bench, bench.artifact(job_id), wanted, tmp_path)["worst"] < 1e-5


def test_padding_that_changes_results_fails_before_the_tuning(bench: Bench) -> None:
    job_id = run(bench, models.masked_sentences(), {"ids": [1, [8, 16]]}, padding={"ids": 0.0, "mask": 1.0})
    failure = bench.failure(job_id)
    assert failure.code == "padding_changes_results"
    assert "padding sequence from 8 to 16 with ids=0, mask=1 changes" in failure.message
