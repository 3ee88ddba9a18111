"""Jobs out of the ordinary: rare operators, operators of a plugin, and bundles for machines that nobody has here."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from domain.artifacts import Variant
from tests.support import models
from tests.support.tuner.engines.relax import networks
from tests.system.worker.routes.service import Service
from tuner.engines.protocol import plugins

pytestmark = pytest.mark.engine

EXAMPLE = "tests.support.plugins.example_plugin.example_plugin"


@pytest.mark.parametrize(("opset", "tuner"), [(16, "ansor"), (20, "metaschedule")])
def test_a_network_with_a_grid_sample_is_tuned_and_verified(service: Service, opset: int, tuner: str) -> None:
    job = service.finish(networks.warped_convolution(opset), tuner=tuner)
    found = service.records(job["id"])
    assert found
    assert any(record.latency for record in found)
    verified = service.artifact(job["id"]).report.verifications
    assert {variant: each.passed for variant, each in verified.items()} == {Variant.UNTUNED: True, Variant.TUNED: True}


def test_operators_of_a_plugin_are_tuned_and_verified(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.VARIABLE, EXAMPLE)
    job = service.finish(models.plugin_operators(functions=True), tuner="autotvm")
    assert "+plugins." in job["placement"]["toolchain"]
    assert any("example_wave" in task["name"] for task in job["tasks"])
    assert any(record.latency for record in service.records(job["id"]))
    report = service.artifact(job["id"]).report
    assert {variant: each.passed for variant, each in report.verifications.items()} == {
        Variant.UNTUNED: True,
        Variant.TUNED: True,
    }


def test_what_nobody_times_here_is_built_but_offered_to_nobody(service: Service, tmp_path: Path) -> None:
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
    content = networks.matmul(rows=12)
    job = service.finish(content, tuner="autotvm", runner="none", target=target, bundle_format="object")
    artifact = service.artifact(job["id"])
    assert (artifact.bundle_format, artifact.device_key) == ("object", "none/t1")
    assert artifact.report.timings == {}
    with tarfile.open(service.download(job["id"], tmp_path / "bundle.tar")) as archive:
        names = archive.getnames()
        manifest = json.loads(archive.extractfile("manifest.json").read())  # type: ignore[union-attr]
    assert "mod.tar" in names
    assert manifest["target"] == target
    for given in ({}, {"target": target}, {"device": "none/t1"}):
        best = service.client.get("/v1/best", params={"model": job["model"], **given})
        assert (best.status_code, best.json()["code"]) == (404, "artifact_not_found")
