from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import delete

from storage import artifacts
from storage.tables import ArtifactRow
from tests.support.api.factories import Service
from tests.support.api.scripted import DEVICE, ScriptedWorker


@pytest.fixture
def artifact(client: TestClient, service: Service, job: str) -> str:
    ScriptedWorker(service).run(job)
    return str(client.get(f"/v1/jobs/{job}").json()["artifact_id"])


def another(
    client: TestClient,
    service: Service,
    model: str,
    *,
    gain: float,
    shape: Sequence[int] = (1, 3, 8, 8),
    precision: str = "f32",
) -> str:
    request = {"model": model, "input_shapes": {"x": list(shape)}, "precision": precision}
    job = client.post("/v1/jobs", json=request).json()["id"]
    ScriptedWorker(service).run(job, gain=gain)
    return str(client.get(f"/v1/jobs/{job}").json()["artifact_id"])


def found_best(client: TestClient, model: str, **params: str) -> tuple[int, str]:
    """Status, and the best artifact's id or a code."""
    answer = client.get("/v1/best", params={"model": model, **params})
    body = answer.json()
    return answer.status_code, body["artifact"]["id"] if answer.is_success else body["code"]


def test_metadata_tell_where_it_comes_from(client: TestClient, artifact: str, job: str) -> None:
    found = client.get(f"/v1/artifacts/{artifact}").json()
    assert (found["job_id"], found["target"], found["precision"]) == (job, "llvm -mcpu=znver3 -num-cores=2", "f32")
    assert found["report"]["published"] == "tuned"
    assert client.get(f"/v1/artifacts/{found['digest']}").json() == found
    assert client.get("/v1/artifacts").json()["artifacts"] == [found]


def test_a_download_is_whole_and_named_by_its_digest(client: TestClient, artifact: str) -> None:
    found = client.get(f"/v1/artifacts/{artifact}").json()
    answer = client.get(found["download"])
    assert answer.status_code == 200
    assert hashlib.sha256(answer.content).hexdigest() == found["digest"]
    assert answer.headers["etag"] == f'"{found["digest"]}"'
    assert int(answer.headers["content-length"]) == found["bytes"]
    assert answer.headers["content-disposition"] == f'attachment; filename="{artifact}.tar"'


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("bytes=0-9", slice(0, 10)),
        ("bytes=10-", slice(10, None)),
        ("bytes=-7", slice(-7, None)),
        ("bytes=5-999999", slice(5, None)),
        ("bytes=-999999", slice(0, None)),
    ],
)
def test_a_part_of_the_bytes(client: TestClient, artifact: str, header: str, part: slice) -> None:
    whole = client.get(f"/v1/artifacts/{artifact}/download").content
    answer = client.get(f"/v1/artifacts/{artifact}/download", headers={"Range": header})
    assert (answer.status_code, answer.content) == (206, whole[part])
    first = range(len(whole))[part][0]
    assert answer.headers["content-range"] == f"bytes {first}-{first + len(answer.content) - 1}/{len(whole)}"


@pytest.mark.parametrize(
    "header", ["bytes=0-1,4-5", "bytes=9-3", "bytes=-", "lines=1-2", "bytes=a-b", f"bytes={'9' * 5000}-"]
)
def test_a_range_that_makes_no_sense_is_overlooked(client: TestClient, artifact: str, header: str) -> None:
    assert client.get(f"/v1/artifacts/{artifact}/download", headers={"Range": header}).status_code == 200


@pytest.mark.parametrize("header", ["bytes=999999-", "bytes=-0"])
def test_a_range_that_does_not_exist(client: TestClient, artifact: str, header: str) -> None:
    answer = client.get(f"/v1/artifacts/{artifact}/download", headers={"Range": header})
    assert (answer.status_code, answer.json()["code"]) == (416, "range_not_satisfiable")
    assert answer.headers["content-range"].startswith("bytes */")


def test_a_range_of_something_else_is_the_whole(client: TestClient, artifact: str) -> None:
    url = f"/v1/artifacts/{artifact}/download"
    etag = client.get(url).headers["etag"]
    assert client.get(url, headers={"Range": "bytes=0-3", "If-Range": etag}).status_code == 206
    assert client.get(url, headers={"Range": "bytes=0-3", "If-Range": '"other"'}).status_code == 200


def test_the_best_is_the_fastest_and_says_why(client: TestClient, service: Service, model: str, artifact: str) -> None:
    faster = another(client, service, model, gain=2.0)
    another(client, service, model, gain=0.9)
    best = client.get("/v1/best", params={"model": model}).json()
    assert best["artifact"]["id"] == faster
    assert "0.400 ms" in best["why"]


def test_the_best_of_a_target_and_device(client: TestClient, service: Service, model: str, artifact: str) -> None:
    best = functools.partial(found_best, client, model)

    assert best(target="llvm -mcpu=znver3") == (200, artifact)
    assert best(target="llvm  -mcpu=znver3 -num-cores=2") == (200, artifact)
    assert best(target="llvm -mcpu=znver3 -num-cores=1") == (404, "artifact_not_found")
    assert best(target="llvm -mcpu=skylake") == (404, "artifact_not_found")
    assert best(device=DEVICE.key) == (200, artifact)
    assert best(device="another") == (404, "artifact_not_found")
    assert best(target="lvm") == (400, "unknown_target")
    assert best(target="native") == (400, "unknown_target"), "no worker has said yet what native is"
    ScriptedWorker(service).beat()
    assert best(target="native") == (200, artifact)


def test_the_best_of_a_toolchain(client: TestClient, service: Service, model: str, artifact: str) -> None:
    best = functools.partial(found_best, client, model)

    for known in ("relay", "relay/tvm-0.19.0", "relay/tvm-0.19.0/llvm-22.1.8"):
        assert best(toolchain=known) == (200, artifact)
    for other in ("relax", "relay/tvm-0.1", "relay/tvm-0.19.0/llvm-22", "rela%", "tvm-0.19.0"):
        assert best(toolchain=other) == (404, "artifact_not_found")


def test_the_best_of_an_input_shape(client: TestClient, service: Service, model: str, artifact: str) -> None:
    wide = another(client, service, model, gain=1.1, shape=[2, 3, 16, 8])

    best = functools.partial(found_best, client, model)

    assert best() == best(input_shape="x:1,3,8,8") == (200, artifact)
    assert best(input_shape="x:2,3,16,8") == (200, wide)
    assert best(input_shape="x:1,3,9,9") == (404, "artifact_not_found")
    assert best(input_shape="y:1,3,8,8") == (404, "artifact_not_found")
    assert best(input_shape="x:1,-3") == best(input_shape="1,3") == (400, "shape_mismatch")
    assert "for x:1,3,8,8" in client.get("/v1/best", params={"model": model}).json()["why"]


def test_a_narrower_precision_is_the_best_only_where_it_is_asked_for(
    client: TestClient, service: Service, model: str
) -> None:
    best = functools.partial(found_best, client, model)

    half = another(client, service, model, gain=3.0, precision="fp16")
    assert best() == (404, "artifact_not_found")
    full = another(client, service, model, gain=2.0)
    assert best() == (200, full)
    assert best(precision="f32") == (200, full)
    assert best(precision="fp16") == (200, half)
    assert best(precision="int3") == (400, "unknown_precision")


def test_the_best_is_verified(client: TestClient, service: Service, model: str, artifact: str) -> None:
    with service.database.transaction() as session:
        unproven = replace(artifacts.get(session, artifact), id="a-unproven", digest="0" * 64, verified=False)
        assert not artifacts.add(session, unproven).verified
        session.execute(delete(ArtifactRow).where(ArtifactRow.id == artifact))
    assert client.get("/v1/artifacts/a-unproven").json()["verified"] is False
    assert client.get("/v1/best", params={"model": model}).status_code == 404


def test_the_best_of_an_unknown_model(client: TestClient) -> None:
    assert client.get("/v1/best?model=m-none").json()["code"] == "model_not_found"
    assert client.get("/v1/best").json()["code"] == "invalid_request"
