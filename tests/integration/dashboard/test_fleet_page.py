"""Workers, devices, engines and quarantine."""

from __future__ import annotations

import re

from fastapi.testclient import TestClient

from tests.integration.dashboard.test_models_page import rows
from tests.support.api.factories import Service
from tests.support.dashboard.networks import CLASSIFIER
from tests.support.dashboard.variety import Various
from tests.support.dashboard.visitors import visitor


def worker(page: str, host: str) -> str:
    cards = re.findall(r'<li class="card worker.*?</li>', page, re.DOTALL)
    found = next(card for card in cards if host in card)
    return " ".join(re.sub(r"<[^>]+>", " ", found).split())


def test_workers_tell_what_they_do(looking: TestClient, various: Various) -> None:
    page = looking.get("/fleet").text
    busy = worker(page, "bench-01")
    assert f"busy {CLASSIFIER.name} tune" in busy
    assert f'href="/jobs/{various.running}"' in page
    assert "relay, TVM 0.19.0, LLVM 22.1.8" in busy
    assert "idle Waiting for a job." in worker(page, "gpu-07")
    assert "NVIDIA H200 GPU" in worker(page, "gpu-07")
    assert "gone" in worker(page, "old-box")


def test_devices_engines_and_quarantine_are_told(looking: TestClient) -> None:
    found = rows(looking.get("/fleet").text)
    assert "NVIDIA H200 cuda/nvidia-h200/sm_90 GPU 1 1" in found
    assert "relay relay, TVM 0.19.0, LLVM 22.1.8 1" in found
    [aside] = [row for row in found if row.startswith("boards:9190")]
    assert "connection reset by peer" in aside
    assert re.search(r"UTC 2\d min", aside)
    assert "<b>a trial</b>" not in looking.get("/fleet").text


def test_what_changes_is_asked_for_alone(client: TestClient) -> None:
    part = client.get("/fleet", headers={"HX-Request": "true"}).text
    assert part.lstrip().startswith('<div id="fleet"')
    assert "<html" not in part


def test_jobs_of_others_are_not_told(varied: tuple[Service, Various]) -> None:
    service, various = varied
    page = visitor(service, "ada").get("/fleet").text
    assert "Running a job of another owner" in worker(page, "bench-01")
    for secret in (various.running, CLASSIFIER.name, "j-somebodys"):
        assert secret not in page
