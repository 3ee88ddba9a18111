"""The API over a store in S3: uploads, downloads and ranges by another host's API, and a store that fails."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from storage import artifacts
from storage.blobs.s3 import S3BlobStore
from storage.tables import ArtifactRow
from tests.support.api.factories import AUTHORIZED, Service, make_service
from tests.support.api.scripted import ScriptedWorker
from tests.support.servers.proxy import Proxy
from tests.support.storage.buckets import Bucket

BUNDLE = bytes(range(256)) * 40_000


def over(service: Service, store: S3BlobStore) -> TestClient:
    """The service as it is with that store."""
    service.app.state.services = replace(service.app.state.services, blobs=store)
    return TestClient(service.app, headers=AUTHORIZED)


@pytest.fixture
def published(tmp_path: Path, bucket: Bucket) -> tuple[Service, str]:
    """Address of a bundle of ten megabytes that a worker of another host put into the bucket."""
    service = make_service(tmp_path)
    with over(service, bucket.store(tmp_path / "api")) as client:
        model = client.put("/v1/models?name=net", content=b"static model").json()["id"]
        assert client.put("/v1/models?name=net", content=b"static model").status_code == 200
        job = client.post("/v1/jobs", json={"model": model}).json()["id"]
    ScriptedWorker(service).run(job)
    blob = bucket.store(tmp_path / "worker").put([BUNDLE])
    with service.database.transaction() as session:
        made = artifacts.of_job(session, job)
        assert made is not None
        session.execute(update(ArtifactRow).values(digest=blob.digest, size_bytes=blob.size_bytes))
    return service, f"/v1/artifacts/{made.id}/download"


def test_a_bundle_and_parts_of_it(published: tuple[Service, str], bucket: Bucket, tmp_path: Path) -> None:
    service, address = published
    with over(service, bucket.store(tmp_path / "api")) as client:
        part = client.get(address, headers={"Range": "bytes=1000000-1000009"})
        assert (part.status_code, part.content) == (206, BUNDLE[1_000_000:1_000_010])
        last = client.get(address, headers={"Range": "bytes=-3"})
        assert (last.status_code, last.content) == (206, BUNDLE[-3:])
        whole = client.get(address)
        assert hashlib.sha256(whole.content).hexdigest() == whole.headers["ETag"].strip('"')
        assert client.get(address, headers={"If-None-Match": whole.headers["ETag"]}).status_code == 304
        assert client.get("/readyz").status_code == 200
    model_only = [path for path in (tmp_path / "api" / "blob-cache").glob("??/*") if path.stat().st_size > 100]
    assert model_only == []  # bundles are streamed, not fetched


def test_a_store_that_refuses_writes(
    published: tuple[Service, str], bucket: Bucket, tmp_path: Path, behind_proxy: Callable[[int], Proxy]
) -> None:
    service, address = published
    proxy = behind_proxy(bucket.server.port)
    with over(service, bucket.store(tmp_path / "api", blob_url=bucket.url(port=proxy.port))) as client:
        proxy.answer_writes = 403
        refused = client.put("/v1/models?name=net", content=b"static model, another")
        assert (refused.status_code, refused.json()["code"]) == (503, "blob_store_refused")
        assert refused.headers["Retry-After"] == "60"
        assert client.get("/readyz").json()["code"] == "not_ready"
        proxy.answer_writes = 507
        assert client.put("/v1/models?name=net", content=b"static model, another").json()["code"] == "blob_store_full"
        assert client.get(address).content == BUNDLE
        proxy.answer_writes = None
        assert client.put("/v1/models?name=net", content=b"static model, another").status_code == 201
        assert client.get("/readyz").status_code == 200
