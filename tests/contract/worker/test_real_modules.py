"""Whole jobs for one tensor function given as IRModule JSON, over real engines."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from domain.artifacts import PLAIN_BUILD, Artifact, Variant
from domain.jobs import BundleFormat, RunnerKind, Tuner
from domain.models import ModelFormat
from storage import models
from tests.support.tuner.engines import asking
from tests.support.worker.fixtures import Bench
from tests.support.worker.real import publish
from tuner.host.catalogue import ROOT
from tuner.host.inspection import Inspector
from tuner.host.settings import TunerSettings
from worker import clock

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("real_engines")]


@pytest.fixture
def matmul(bench: Bench, tmp_path: Path) -> bytes:
    """Uploaded to the bench."""
    asking.python("relax", ROOT / "tests/support/tuner/engines/relax/functions.py", tmp_path)
    content = (tmp_path / "matmul.json").read_bytes()
    blob = bench.blobs.put([content])
    facts = Inspector.installed(ModelFormat.IRMODULE, bench.home, TunerSettings()).inspect(
        bench.blobs.path(blob.digest)
    )
    with bench.database.transaction() as session:
        models.add(session, digest=blob.digest, name="matmul", size_bytes=blob.size_bytes, facts=facts, now=clock.now())
    return content


def test_a_tensor_function_is_tuned_and_compared_with_its_own_plain_build(
    bench: Bench, matmul: bytes, tmp_path: Path
) -> None:
    # Its example runs with TVM alone.
    job_id = bench.job(trials=8, content=matmul, tuner=Tuner.METASCHEDULE, bundle_format=BundleFormat.TVM)
    found = publish(bench, job_id)
    assert found.toolchain.startswith("relax/")
    assert len(bench.records(job_id)) == 8
    report = found.report
    assert set(report.timings) == {Variant.REFERENCE, Variant.UNTUNED, Variant.TUNED}
    assert all(each.passed for each in report.verifications.values())
    assert report.compared_with == PLAIN_BUILD
    assert PLAIN_BUILD in report.summary
    assert "ONNX Runtime" not in report.summary
    _check_bundle(bench, found, tmp_path / "bundle")
    again = bench.job(trials=8, content=matmul, tuner=Tuner.METASCHEDULE)
    publish(bench, again)
    assert bench.records(again) == []


def _check_bundle(bench: Bench, artifact: Artifact, folder: Path) -> None:
    with tarfile.open(bench.blobs.path(artifact.digest)) as archive:
        archive.extractall(folder, filter="data")
    evidence = json.loads((folder / "evidence.json").read_text())
    assert evidence["compared_with"] == PLAIN_BUILD
    readme = (folder / "README.md").read_text()
    assert f"Largest errors against {PLAIN_BUILD}" in readme
    assert "ONNX Runtime" not in readme
    assert "C: float32[32, 32]" in asking.python("relax", folder / "example.py")


def test_it_is_built_where_nothing_is_timed(bench: Bench, matmul: bytes) -> None:
    # Objects need no linker for the target.
    place = {"target": "llvm -mtriple=aarch64-linux-gnu", "threads": 1, "bundle_format": BundleFormat.OBJECT}
    job_id = bench.job(trials=1, content=matmul, tuner=Tuner.METASCHEDULE, runner=RunnerKind.NONE, **place)
    found = publish(bench, job_id)
    assert (found.verified, found.report.timings) == (bool(shutil.which("qemu-aarch64")), {})
