"""Files with which ONNX Runtime ends by a signal: taken as uploads, for nothing but a run tells, and nobody's harm."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from domain import errors
from tests.support import models, serving
from tests.support.hostile import crashers
from tests.support.hostile.fates import FATAL, Hostile
from tests.support.tuner.engines.fixtures import home
from tuner.host import catalogue, environments
from tuner.host.inspection import Inspector

pytestmark = pytest.mark.engine

_FATAL = [hostile for hostile in crashers.crashers() if hostile.fate == FATAL]
_ONE_OF_EACH = list({hostile.signal: hostile for hostile in _FATAL}.values())
"""By the signal that ends who runs it; ``Inspector`` runs each file."""
_READ = [hostile for hostile in crashers.crashers() if hostile.name in ("kernel_of_another_rank", "strides_of_zero")]
"""What ends who reads it, and what is refused before: ``test_corpus.py`` has the others."""


@pytest.mark.parametrize("hostile", _FATAL, ids=lambda hostile: hostile.name)
def test_who_runs_it_ends_by_a_signal(hostile: Hostile, tmp_path: Path) -> None:
    spec = catalogue.get("onnx")
    inspector = Inspector(spec=spec, python=environments.interpreter(spec, home()), home=home())
    path, out = tmp_path / "model.onnx", tmp_path / "prepared.onnx"
    path.write_bytes(hostile.content)
    inspector.inspect(path)
    with pytest.raises(errors.InvalidModel, match=f"ended with {hostile.signal}") as caught:
        inspector.prepare(path, {}, out)
    assert caught.value.details == {"cause": "engine_crashed", "reason": "reader_ended"}
    assert not out.exists(), "no other engine sees what ONNX Runtime did not survive"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[httpx.Client]:
    with (
        serving.serving(serving.environment(tmp_path), log=tmp_path / "serve.log"),
        serving.client(tmp_path, timeout=120.0) as client,
    ):
        yield client


def test_their_jobs_fail_and_the_service_stays_as_it_was(service: httpx.Client, tmp_path: Path) -> None:
    before = _processes(tmp_path)
    queued = []
    for hostile in _ONE_OF_EACH:
        answer = service.put("/v1/models", params={"name": hostile.name}, content=hostile.content)
        assert answer.status_code == 201, answer.text
        queued.append((hostile, service.post("/v1/jobs", json={"model": answer.json()["id"]}).json()["id"]))
    for hostile in _READ:
        refused = service.put("/v1/models", params={"name": hostile.name}, content=hostile.content)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_model")
        assert refused.json()["details"]["reason"] == hostile.reason
    for hostile, job_id in queued:
        job = _ended(service, job_id)
        assert job["state"] == "failed", hostile.name
        assert job["failure"]["code"] == "invalid_model"
        assert f"ended with {hostile.signal}" in job["failure"]["message"]
    assert service.put("/v1/models", params={"name": "good"}, content=models.small_network()).status_code == 201
    assert service.get("/readyz").status_code == 200
    assert before <= _processes(tmp_path), "nobody had to be started again"


def _ended(service: httpx.Client, job_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        job: dict[str, Any] = service.get(f"/v1/jobs/{job_id}").json()
        if job["state"] not in ("queued", "running", "canceling"):
            return job
        time.sleep(0.2)
    raise AssertionError(f"job {job_id} did not end")


def _processes(of_home: Path) -> set[int]:
    """Of the service itself, engines left out."""
    found = set()
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("TUNESMITH_HOME") == str(of_home)
            words = process.cmdline()
        except psutil.Error:
            continue
        if ours and {"serve", "api", "worker"} & {*words, *(word.partition(".")[0] for word in words)}:
            found.add(process.pid)
    return found
