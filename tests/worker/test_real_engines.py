"""Whole jobs over real engines, without a service around them: fp16, and GPUs that nobody has."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from domain.artifacts import Artifact
from domain.jobs import Job, JobState, Precision, RunnerKind, Tuner
from storage import artifacts
from tests import models
from tests.worker.conftest import Bench
from tuner import catalogue, environments
from tuner.settings import TunerSettings
from worker.engines import InstalledEngines

pytestmark = pytest.mark.engine

NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


@pytest.fixture(autouse=True)
def _engines(monkeypatch: pytest.MonkeyPatch) -> None:
    outer = Path(os.environ.get("TUNESMITH_HOME") or Path.home() / ".local" / "share" / "tunesmith")
    for spec in catalogue.ENGINES.values():
        monkeypatch.setenv(environments.variable(spec), str(environments.interpreter(spec, outer)))


def finish(bench: Bench, **request: Any) -> Job:
    shapes = {"image": (1, 3, 16, 16)}
    job_id = bench.job(trials=8, content=models.small_network(), input_shapes=shapes, **request)
    runtime = replace(bench.runtime(), engines=InstalledEngines(home=bench.home, settings=TunerSettings()))
    runtime.run_job(job_id)
    return bench.get(job_id)


def run(bench: Bench, **request: Any) -> tuple[str, Artifact]:
    job = finish(bench, **request)
    assert job.state is JobState.SUCCEEDED, job.failure
    with bench.database.reading() as session:
        found = artifacts.of_job(session, job.id)
    assert found is not None
    return job.id, found


def test_half_precision_is_verified_with_its_own_tolerances(bench: Bench) -> None:
    _, found = run(bench, tuner=Tuner.AUTOTVM, precision=Precision.FP16)
    assert found.precision == "fp16"
    for each in found.report.verifications.values():
        assert (each.passed, each.precision) == (True, "fp16")
        assert all(output.rtol == pytest.approx(2e-2) for output in each.outputs)


def test_a_gpus_build_needs_a_compiler_and_no_gpu(bench: Bench) -> None:
    request = {"target": "cuda -arch=sm_90", "threads": 4, "runner": RunnerKind.NONE}
    if NVCC:
        _, found = run(bench, **request)
        assert (found.verified, found.report.timings) == (False, {})
        assert found.size_bytes > 10_000
    else:
        failure = finish(bench, **request).failure
        assert failure is not None
        assert (failure.code, "nvcc" in str(failure.hint)) == ("compiler_missing", True)
