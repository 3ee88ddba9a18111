"""What somebody may send to see what happens: names, labels, bodies and addresses that are not meant well."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.api.factories import SHAPES, Service

NAMES = [
    "../../etc/passwd",
    "..\\..\\windows",
    "/etc/passwd",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "%2e%2e%2f",
    "na\N{COMBINING DIAERESIS}me \N{PILE OF POO}",
    "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe",
    "\N{ZERO WIDTH SPACE}",
    "'; DROP TABLE models; --",
    "-rf",
    " ",
    "." * 200,
]
JSON = {"Content-Type": "application/json"}


def problem(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


def ask(client: TestClient, model: str, **request: Any) -> Any:
    return client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES, **request})


def test_a_models_name_is_text_and_never_a_path_or_a_page(client: TestClient, service: Service) -> None:
    for number, name in enumerate(NAMES):
        answer = client.put("/v1/models", params={"name": name}, content=f"static {number}".encode())
        assert (answer.status_code, answer.json()["name"]) == (201, name)
    listed = client.get("/v1/models")
    assert {entry["name"] for entry in listed.json()["models"]} == set(NAMES)
    assert listed.headers["content-type"] == "application/json"
    assert listed.headers["x-content-type-options"] == "nosniff"
    files = [path.name for path in (service.home / "blobs").rglob("*") if path.is_file()]
    assert all(len(name) == 62 and name.isalnum() for name in files), "a blob is named by its digest"
    for page in ("/", "/models", "/new"):
        shown = client.get(page, headers={"Accept": "text/html"})
        assert shown.status_code == 200, page
        assert "<script>alert" not in shown.text, page
        assert "<img src=x" not in shown.text, page


@pytest.mark.parametrize("path", ["/v1/models/{}", "/v1/jobs/{}", "/v1/jobs/{}/log", "/v1/artifacts/{}/download"])
def test_ids_are_looked_up_and_never_opened(lasting: TestClient, path: str) -> None:
    for name in (
        "..",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "%2fetc%2fpasswd",
        "x" * 5000,
        "%e2%80%ae",
        "%ff%fe",
        "*",
        "j-%25",
        "'%20OR%201=1--",
    ):
        status, code = problem(lasting.get(path.format(name)))
        assert status == 404, (name, code)


@pytest.mark.parametrize(
    "path", ["/v1/models/%00", "/v1/jobs/j-1%00", "/v1/records?job=%00", "/v1/jobs?text=a%00b", "/v1/models?name=%00"]
)
def test_addresses_hold_no_nul(lasting: TestClient, path: str) -> None:
    assert problem(lasting.get(path)) == (400, "invalid_request")


def test_texts_that_no_database_can_store(lasting: TestClient, lasting_model: str) -> None:
    for text in ("a\0b", "\ud800", "\udc00\ud800"):
        for change in ({"labels": {"x": text}}, {"labels": {text: "x"}}, {"target": text}, {"group": text}):
            body = json.dumps({"model": lasting_model, "input_shapes": SHAPES, **change})
            answer = lasting.post("/v1/jobs", content=body, headers=JSON)
            assert problem(answer) == (400, "invalid_request"), change
            answer.json()
    assert lasting.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    "labels",
    [
        {f"n{number}": "v" for number in range(65)},
        {"n": "v" * 201},
        {"n" * 201: "v"},
        {"": "v"},
        {"n": ""},
        {"n": None},
        {"n": 1},
        {"n": {"deep": "v"}},
        ["n"],
    ],
    ids=["many", "long value", "long name", "no name", "no value", "null", "number", "object", "list"],
)
def test_labels_that_are_too_much(lasting: TestClient, lasting_model: str, labels: Any) -> None:
    assert problem(ask(lasting, lasting_model, labels=labels)) == (400, "invalid_request")


def test_as_many_and_as_long_labels_as_are_allowed(client: TestClient, model: str) -> None:
    labels = {f"{number:03}" + "n" * 197: "<b>" + "v" * 197 for number in range(64)}
    assert ask(client, model, labels=labels).json()["labels"] == labels


@pytest.mark.parametrize(
    "change",
    [
        {"threads": True},
        {"priority": False},
        {"budget": {"trials": True}},
        {"measure": {"repeat": True}},
        {"measure": {"timeout": True}},
        {"input_shapes": {"x": [True, 3, 8, 8]}},
        {"input_shapes": {"x": [1.5, 3, 8, 8]}},
        {"labels": {"x": True}},
    ],
)
def test_true_is_no_number(lasting: TestClient, lasting_model: str, change: Any) -> None:
    assert problem(ask(lasting, lasting_model, **change)) == (400, "invalid_request")
    quota = lasting.post("/v1/tokens", json={"name": "ci", "quota": {"stored_bytes": False}})
    assert problem(quota) == (400, "invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"1",
        b'"text"',
        b"\xff\xfe",
        b'{"model": "\xff"}',
        b'{"model": NaN}',
        b'{"model": 1e999}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"labels": ' + b'{"x": ' * 5000 + b"1" + b"}" * 5001,
        b'{"model": "m", "model": ' + b"9" * 5000 + b"}",
        b"\x00" * 100,
        b"\xef\xbb\xbf{}",
    ],
    ids=lambda body: repr(body[:12]),
)
def test_bodies_that_are_no_request(lasting: TestClient, body: bytes) -> None:
    for path in ("/v1/jobs", "/v1/jobs:plan", "/v1/models:operator", "/v1/tokens"):
        assert problem(lasting.post(path, content=body, headers=JSON)) == (400, "invalid_request"), path


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/xml", "multipart/form-data", "application/x-www-form-urlencoded", "nonsense", "", None],
)
def test_bodies_that_do_not_say_that_they_are_json(
    lasting: TestClient, lasting_model: str, content_type: str | None
) -> None:
    body = json.dumps({"model": lasting_model, "input_shapes": SHAPES}).encode()
    headers = {} if content_type is None else {"Content-Type": content_type}
    assert problem(lasting.post("/v1/jobs", content=body, headers=headers)) == (400, "invalid_request")
    assert lasting.get("/v1/jobs").json()["jobs"] == []


def test_an_upload_may_call_itself_anything(client: TestClient) -> None:
    for number, content_type in enumerate(("application/json", "text/html", "nonsense")):
        headers = {"Content-Type": content_type}
        answer = client.put("/v1/models", content=f"static {number}".encode(), headers=headers)
        assert answer.status_code == 201


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Content-Length", "-1"),
        ("Content-Length", "9" * 5000),
        ("Content-Length", "\u0661"),
        ("Last-Event-ID", "x"),
        ("Last-Event-ID", "9" * 30),
        ("If-None-Match", '"' * 5000),
        ("Range", "bytes=" + ",".join(["0-"] * 2000)),
        ("Authorization", "Bearer " + "x" * 5000),
        ("Authorization", "Bearer \xff\xfe"),
        ("Cookie", "tunesmith_session=" + "x" * 5000),
        ("Accept", "\xff"),
        ("X-Forwarded-For", "'; DROP TABLE"),
        ("Origin", "http://evil"),
    ],
)
def test_headers_that_make_no_sense_break_nothing(
    lasting: TestClient, lasting_model: str, name: str, value: str
) -> None:
    for path in ("/v1/jobs", "/v1/jobs/j-1/events", "/v1/artifacts/a-1/download", f"/v1/models/{lasting_model}"):
        answer = lasting.get(path, headers={name: value.encode("utf-8" if ord(value[0]) > 255 else "latin-1")})  # type: ignore[dict-item]
        assert answer.status_code in (200, 400, 401, 404, 413), path


def test_an_import_without_a_place_names_what_is_missing(lasting: TestClient) -> None:
    for params in ({"device": "", "toolchain": ""}, {"device": "a"}, {"toolchain": "relay/tvm-0.19.0/llvm-22.1.8"}):
        answer = lasting.post("/v1/records", params={"tuner": "autotvm", **params}, content=b"{}")
        assert problem(answer) == (400, "invalid_request")
