"""A model whose weights are in a file of their own, through the whole service."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.tuner.engines.fixtures import home
from tests.system.worker.test_end_to_end import _serve
from tuner.host import catalogue, environments

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

MEGABYTES = 60


def test_an_archive_of_a_model_and_its_weights_is_tuned(tmp_path: Path) -> None:
    python, archive = environments.interpreter(catalogue.get("onnx"), home()), tmp_path / "model.tar"
    command = [str(python), "-m", "bench.large_model", str(MEGABYTES * 10**6), str(archive)]
    subprocess.run(command, cwd=catalogue.ROOT, check=True, timeout=60)
    service = tmp_path / "home"
    service.mkdir()
    with _serve(service) as served:
        answer = served.client.put("/v1/models", params={"name": "large"}, content=archive.read_bytes(), timeout=120)
        assert answer.status_code == 201, answer.text
        model = answer.json()
        assert model["operators"] == {"MatMul": 4, "Relu": 3}
        assert model["parameters"] * 4 == pytest.approx(MEGABYTES * 10**6, rel=0.01)
        job = {"model": model["id"], "tuner": "metaschedule", "budget": {"trials": 2}}
        done = served.finish(served.client.post("/v1/jobs", json=job).json()["id"])
        bundle = tmp_path / "bundle.tar"
        bundle.write_bytes(served.client.get(f"/v1/artifacts/{done['artifact_id']}/download").content)
    command = [str(python), "-m", "tests.support.truths", "difference", str(bundle), str(archive)]
    said = subprocess.run(command, cwd=catalogue.ROOT, check=True, capture_output=True, timeout=60)
    assert json.loads(said.stdout) < 1e-4
