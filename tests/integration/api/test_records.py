from __future__ import annotations

import io
import json
import tarfile
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient

from domain.targets import Device, Target
from domain.tokens import Scope
from storage import workloads
from tests.support.api import callers
from tests.support.api.factories import SHAPES, TOOLCHAINS, Service
from tests.support.api.scripted import DEVICE, ScriptedWorker
from tests.support.hostile.tars import hostile
from tests.unit.tuner.native.test_formats import ANSOR, AUTOTVM, KEY, RECORDS, WORKLOADS
from tuner.native import metaschedule

SKYLAKE = {"target": "llvm -mcpu=skylake-avx512 -num-cores=2", "device_key": "AMD EPYC 7R13/avx2/t2"}
NAMED = {"device": "a device/t2", "toolchain": "relay/tvm-0.19.0/llvm-22"}


@pytest.fixture
def worker(service: Service) -> ScriptedWorker:
    made = ScriptedWorker(service)
    made.beat(toolchains=tuple(TOOLCHAINS.values()))
    return made


def send(client: TestClient, content: bytes | list[str], tuner: str = "autotvm", **params: Any) -> Any:
    body = content if isinstance(content, bytes) else "\n".join(content).encode()
    answer = client.post("/v1/records", params={"tuner": tuner, **params}, content=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def packed(workload_lines: list[str], record_lines: list[str]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, lines in (
            (metaschedule.RECORDS_FILE, record_lines),
            (metaschedule.WORKLOADS_FILE, workload_lines),
        ):
            content = "\n".join(lines).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def unpacked(content: bytes) -> dict[str, list[str]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {member.name: archive.extractfile(member).read().decode().splitlines() for member in archive}  # type: ignore[union-attr]


def problem(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(("tuner", "lines"), [("autotvm", AUTOTVM), ("ansor", ANSOR)])
def test_lines_come_back_as_tvm_wrote_them(client: TestClient, tuner: str, lines: list[str]) -> None:
    report = send(client, lines, tuner)
    assert (report["imported"], report["known_already"], report["refused_count"]) == (len(lines), 0, 0)
    assert report["places"] == [{**SKYLAKE, "toolchain": TOOLCHAINS["relay"].identity, "records": len(lines)}]
    again = send(client, lines, tuner)
    assert (again["imported"], again["known_already"]) == (0, len(lines))
    answer = client.get("/v1/records", params={"tuner": tuner, "format": "native", "provenance": "imported"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"] == f'attachment; filename="{tuner}-imported.json"'
    assert answer.text == "\n".join(lines) + "\n"
    assert client.get("/v1/records", params={"tuner": tuner, "format": "native"}).text == "", "none was measured"


@pytest.mark.usefixtures("worker")
def test_metaschedule_databases_come_back_as_tvm_wrote_them(client: TestClient, service: Service) -> None:
    report = send(client, packed(WORKLOADS, RECORDS), "metaschedule")
    assert (report["imported"], report["refused_count"]) == (3, 0)
    with service.database.reading() as session:
        assert workloads.definitions(session, [KEY]) == {KEY: WORKLOADS[0]}
    answer = client.get("/v1/records?tuner=metaschedule&format=native&provenance=imported")
    assert answer.headers["content-type"] == "application/x-tar"
    assert unpacked(answer.content) == {metaschedule.WORKLOADS_FILE: WORKLOADS, metaschedule.RECORDS_FILE: RECORDS}
    assert send(client, answer.content, "metaschedule")["known_already"] == 3


@pytest.mark.usefixtures("worker")
def test_refused_lines_are_told_and_the_rest_is_taken(client: TestClient) -> None:
    other = AUTOTVM[1].replace("skylake-avx512", "znver3")
    report = send(client, [AUTOTVM[0], "", "nonsense", other], target="llvm -mcpu=skylake-avx512")
    assert (report["imported"], report["refused_count"]) == (1, 2)
    assert report["refused"] == [
        {"file": None, "line": 3, "reason": "not JSON"},
        {
            "file": None,
            "line": 4,
            "reason": "measured for 'llvm -mcpu=znver3', not for 'llvm -mcpu=skylake-avx512'",
        },
    ]
    many = send(client, ["x"] * 250)
    assert (many["refused_count"], len(many["refused"])) == (250, 100)
    broken = send(
        client, packed(["[]", *WORKLOADS], [RECORDS[0], "[1" + RECORDS[1][2:], "[9" + RECORDS[2][2:]]), "metaschedule"
    )
    assert broken["imported"] == 1
    assert [(one["file"], one["line"]) for one in broken["refused"]] == [
        (metaschedule.WORKLOADS_FILE, 1),
        (metaschedule.RECORDS_FILE, 1),
        (metaschedule.RECORDS_FILE, 3),
    ]


def test_a_line_without_target_restriction_keeps_its_own(client: TestClient, worker: ScriptedWorker) -> None:
    lines = [AUTOTVM[0], AUTOTVM[1].replace("skylake-avx512", "znver3"), AUTOTVM[2].replace("cores=2", "cores=1")]
    report = send(client, lines)
    assert sorted((place["target"], place["device_key"]) for place in report["places"]) == [
        ("llvm -mcpu=skylake-avx512 -num-cores=1", "AMD EPYC 7R13/avx2/t1"),
        ("llvm -mcpu=skylake-avx512 -num-cores=2", "AMD EPYC 7R13/avx2/t2"),
        ("llvm -mcpu=znver3 -num-cores=2", "AMD EPYC 7R13/avx2/t2"),
    ]
    assert send(client, lines, target="native")["known_already"] == 1
    assert worker.names


def test_device_and_toolchain_can_be_named_where_no_worker_lives(client: TestClient) -> None:
    answer = client.post("/v1/records?tuner=autotvm", content=AUTOTVM[0])
    assert problem(answer) == (400, "invalid_request")
    assert "set device and toolchain" in answer.json()["detail"]
    report = send(client, AUTOTVM, **NAMED)
    assert report["places"] == [
        {"target": SKYLAKE["target"], "device_key": "a device/t2", "toolchain": NAMED["toolchain"], "records": 4}
    ]


def test_two_kinds_of_workers_leave_it_to_the_caller(client: TestClient, worker: ScriptedWorker) -> None:
    worker.beat(id="other:1:1", device=Device(key="another/t2", name="another", threads=2))
    answer = client.post("/v1/records?tuner=autotvm", content=AUTOTVM[0])
    assert answer.json()["details"]["devices"] == [DEVICE.key, "another/t2"]
    assert send(client, AUTOTVM, **NAMED)["imported"] == 4


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"tuner": "auto"}, "unknown_tuner"),
        ({"tuner": "nonsense"}, "unknown_tuner"),
        ({"tuner": "autotvm", "target": "nonsense"}, "unknown_target"),
        ({"tuner": "autotvm", "toolchain": "relax/tvm-0.27.0/llvm-22"}, "invalid_option"),
        ({"tuner": "autotvm", "toolchain": "nonsense"}, "invalid_option"),
        ({"tuner": "autotvm", "target": "llvm -num-cores=2", "threads": 3}, "invalid_option"),
        ({"tuner": "autotvm", "target": "cuda -arch=sm_90"}, "invalid_request"),
        ({"tuner": "autotvm", "threads": 0}, "invalid_request"),
        ({"tuner": "metaschedule"}, "invalid_request"),
        ({}, "invalid_request"),
    ],
)
def test_a_wrong_import_is_refused(client: TestClient, params: dict[str, Any], code: str) -> None:
    assert problem(client.post("/v1/records", params=params, content="\n".join(AUTOTVM))) == (400, code)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("name", hostile())
def test_a_hostile_archive_is_refused(client: TestClient, name: str) -> None:
    answer = client.post("/v1/records?tuner=metaschedule", content=hostile()[name])
    assert problem(answer) == (400, "invalid_request")
    assert answer.json()["hint"].startswith("Create it with: tar cf records.tar")


@pytest.mark.usefixtures("worker")
def test_an_import_is_larger_than_other_requests(client: TestClient) -> None:
    line = json.loads(AUTOTVM[0])
    lines = []
    for number in range(3000):
        line["config"]["entity"][0][2] = [-1, 1, number + 2]
        lines.append(json.dumps(line))
    assert len("\n".join(lines)) > 1024 * 1024
    assert send(client, lines)["imported"] == 3000
    answer = client.get("/v1/records", params={"tuner": "autotvm", "format": "native", "provenance": "imported"})
    assert answer.text.splitlines() == lines


@pytest.mark.usefixtures("worker")
def test_records_are_listed_by_filters_and_pages(client: TestClient) -> None:
    send(client, AUTOTVM)
    send(client, ANSOR, "ansor")
    first = client.get("/v1/records?limit=3").json()
    rest = client.get("/v1/records", params={"limit": 200, "page_token": first["next_page_token"]}).json()
    assert (len(first["records"]), len(rest["records"]), rest["next_page_token"]) == (3, 4, None)
    record = first["records"][0]
    assert record["latencies"] == [0.0012345, 0.001, 0.0011]
    assert record["schedule"] == AUTOTVM[0]
    assert datetime.fromisoformat(record["finished_at"]) == datetime.fromtimestamp(1700000000.5, UTC)
    for params, count in (
        ({"tuner": "ansor"}, 3),
        ({"tuner": "ansor", "valid_only": True}, 2),
        ({"target": SKYLAKE["target"]}, 7),
        ({"target": "llvm -mcpu=skylake-avx512"}, 7),
        ({"target": "llvm  -mcpu=skylake-avx512  -num-cores=2"}, 7),
        ({"target": "llvm -mcpu=skylake-avx512 -num-cores=1"}, 0),
        ({"workload": record["workload_key"]}, 4),
        ({"provenance": "imported"}, 7),
        ({"provenance": "measured"}, 0),
        ({"state": "untried"}, 7),
        ({"state": "failed"}, 0),
        ({"device": DEVICE.key, "toolchain": record["toolchain"]}, 7),
        ({"toolchain": "another"}, 0),
    ):
        assert len(client.get("/v1/records", params=params).json()["records"]) == count, params


def test_a_record_says_where_it_comes_from(client: TestClient, service: Service, worker: ScriptedWorker) -> None:
    job = client.post("/v1/jobs", json={"model": upload(client), "input_shapes": SHAPES}).json()["id"]
    worker.run(job)
    send(client, AUTOTVM[:1])
    *measured, imported = client.get("/v1/records").json()["records"]
    assert {(each["provenance"], each["worker"], each["job"]) for each in measured} == {
        ("measured", measured[0]["worker"], job)
    }
    assert measured[0]["worker"]
    assert {(each["owner"], each["id"], each["state"]) for each in measured} == {(None, None, None)}
    assert (imported["provenance"], imported["owner"], imported["state"]) == ("imported", "local", "untried")
    assert (imported["worker"], imported["job"], imported["trial_number"]) == (None, None, None)


def upload(client: TestClient) -> str:
    return str(client.put("/v1/models?name=m", content=b"dynamic model").json()["id"])


@pytest.mark.usefixtures("worker")
def test_imports_belong_to_who_brought_them(service: Service) -> None:
    ann, bob = callers.headers(service, owner="ann"), callers.headers(service, owner="bob")
    reader = callers.headers(service, owner="ann", scopes={Scope.READ})
    with TestClient(service.app) as client:
        body = "\n".join(AUTOTVM).encode()
        for headers in (ann, bob):
            answer = client.post("/v1/records?tuner=autotvm", content=body, headers=headers).json()
            assert (answer["imported"], answer["known_already"]) == (4, 0), "each owner has an own copy"
        first = client.get("/v1/records?provenance=imported", headers=ann).json()["records"][0]
        assert {each["owner"] for each in client.get("/v1/records", headers=ann).json()["records"]} == {"ann"}
        for method, path in (("DELETE", "/v1/records"), ("POST", "/v1/records:invalidate")):
            answer = client.request(method, path, params={"id": first["id"]}, headers=bob)
            assert (answer.status_code, answer.json()) == (200, {"records": 0})
            assert problem(client.request(method, path, params={"owner": "ann"}, headers=bob)) == (403, "missing_scope")
            assert problem(client.request(method, path, params={"id": first["id"]}, headers=reader))[0] == 403
            assert problem(client.request(method, path, headers=ann)) == (400, "invalid_request")
        assert problem(client.get("/v1/records?owner=ann", headers=bob)) == (403, "missing_scope")
        assert len(client.get("/v1/records?state=untried", headers=ann).json()["records"]) == 4
        assert client.post("/v1/records:invalidate", params={"id": first["id"]}, headers=ann).json() == {"records": 1}
        assert client.get("/v1/records?state=invalidated", headers=ann).json()["records"][0]["id"] == first["id"]
        answer = client.post("/v1/records?tuner=autotvm", content=body, headers=ann).json()
        assert (answer["imported"], answer["known_already"]) == (0, 4)
        assert client.delete("/v1/records?tuner=autotvm", headers=ann).json() == {"records": 4}
        assert len(client.get("/v1/records", headers=bob).json()["records"]) == 4


@pytest.mark.usefixtures("worker")
def test_an_admin_lists_and_removes_anybody_s_imports(client: TestClient, service: Service) -> None:
    for owner in ("ann", "bob"):
        client.post(
            "/v1/records?tuner=autotvm",
            content="\n".join(AUTOTVM).encode(),
            headers=callers.headers(service, owner=owner),
        )
    assert len(client.get("/v1/records").json()["records"]) == 8
    assert len(client.get("/v1/records?owner=bob").json()["records"]) == 4
    assert client.post("/v1/records:invalidate?owner=bob&tuner=autotvm").json() == {"records": 4}
    assert client.delete("/v1/records?owner=ann").json() == {"records": 4}
    assert client.delete("/v1/records?target=native&tuner=autotvm").status_code == 200


def test_an_empty_export_is_an_empty_file(client: TestClient) -> None:
    assert client.get("/v1/records?tuner=ansor&format=native").content == b""
    empty = unpacked(client.get("/v1/records?tuner=metaschedule&format=native").content)
    assert empty == {metaschedule.WORKLOADS_FILE: [], metaschedule.RECORDS_FILE: []}


def test_what_can_match_nothing_is_told(client: TestClient) -> None:
    assert problem(client.get("/v1/records?job=j-none")) == (404, "job_not_found")
    assert problem(client.get("/v1/records?tuner=ansor&format=native&job=j-none")) == (404, "job_not_found")


def test_native_is_the_target_of_the_living_workers(client: TestClient, worker: ScriptedWorker) -> None:
    line = AUTOTVM[0]
    assert send(client, [line], device="a device/t2", toolchain=NAMED["toolchain"])["imported"] == 1
    own = client.get("/v1/records").json()["records"][0]["target"]
    assert client.get("/v1/records?target=native").json()["records"] == [], "another CPU"
    worker.beat(native_target=Target(text=own.partition(" -num-cores")[0], threads=2))
    assert [record["target"] for record in client.get("/v1/records?target=native").json()["records"]] == [own]
    worker.beat(id="other:1:1")
    assert problem(client.get("/v1/records?target=native")) == (400, "invalid_request")
