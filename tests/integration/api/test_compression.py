"""Compressed responses: pages and JSON, never streams and downloads."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.support.api.factories import Service
from tests.support.api.scripted import ScriptedWorker

GZIP, PLAIN = {"Accept-Encoding": "gzip"}, {"Accept-Encoding": "identity"}


@pytest.fixture
def finished(service: Service, job: str) -> str:
    ScriptedWorker(service).run(job)
    return job


@pytest.mark.parametrize("path", ["/jobs/{job}", "/docs", "/v1/jobs/{job}/report", "/openapi.json"])
def test_pages_and_json_are_compressed(client: TestClient, finished: str, path: str) -> None:
    path = path.format(job=finished)
    plain, packed = client.get(path, headers=PLAIN), client.get(path, headers=GZIP)
    assert plain.status_code == packed.status_code == 200
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2
    for answer in (plain, packed):
        assert "Accept-Encoding" in answer.headers["vary"]
    assert (packed.text == plain.text) or path.startswith("/jobs/"), "pages show ages"


def test_each_encoding_has_a_tag_of_its_own(client: TestClient, finished: str) -> None:
    path = f"/v1/jobs/{finished}/report"
    tags = {name: client.get(path, headers=asked).headers["etag"] for name, asked in (("gz", GZIP), ("id", PLAIN))}
    assert tags["gz"] != tags["id"]
    for asked, own, other in ((GZIP, "gz", "id"), (PLAIN, "id", "gz")):
        same = client.get(path, headers={**asked, "If-None-Match": tags[own]})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tags[own])
        assert "content-encoding" not in same.headers
        assert client.get(path, headers={**asked, "If-None-Match": tags[other]}).status_code == 200


def test_what_is_small_is_sent_as_it_is(client: TestClient) -> None:
    assert "content-encoding" not in client.get("/healthz", headers=GZIP).headers


def test_streams_and_downloads_are_sent_as_they_are(client: TestClient, finished: str) -> None:
    artifact = client.get(f"/v1/jobs/{finished}").json()["artifact_id"]
    for path in (
        f"/v1/jobs/{finished}/events",
        f"/v1/jobs/{finished}/log",
        f"/v1/jobs/{finished}/records",
        f"/v1/artifacts/{artifact}/download",
        "/v1/records?tuner=autotvm&format=native",
        "/metrics",
    ):
        answer = client.get(path, headers=GZIP)
        assert answer.status_code == 200, path
        assert len(answer.content) > 0 or path.endswith("/log")
        assert "content-encoding" not in answer.headers, path
    download = client.get(f"/v1/artifacts/{artifact}/download", headers=GZIP)
    assert int(download.headers["content-length"]) == len(download.content)
