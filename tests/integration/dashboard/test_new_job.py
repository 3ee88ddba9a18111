"""The form for a new job: what it offers, what it plans, what it refuses, and the job it makes."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.jobs import drafts
from api.jobs.pages import form_fields
from domain import errors
from domain.jobs import Budget
from domain.tokens import Quota, Scope
from storage import jobs
from tests.support.api.factories import SHAPES, TOOLCHAINS, Service
from tests.support.api.scripted import DEVICE, ScriptedWorker
from tests.support.dashboard.variety import GPU
from tests.support.dashboard.visitors import visitor
from tuner.search import racing

BOTH = tuple(TOOLCHAINS.values())


@pytest.fixture
def filled(model: str) -> dict[str, str]:
    return {"model": model, "symbol:batch": "1", "axis:x:2": "8", "target": "native", "tuner": "auto", "budget": "600"}


@pytest.fixture
def _worker(service: Service) -> None:
    ScriptedWorker(service).beat(toolchains=BOTH)


def ticket(page: str) -> dict[str, str]:
    return dict(re.findall(r'<input type="hidden" name="(planned|key)" value="([^"]+)">', page))


def faults(page: str) -> str:
    found = re.search(r'id="faults".*?</div>', page, re.DOTALL)
    return unescape(re.sub(r"<[^>]+>|\s+", " ", found[0])) if found else ""


def queued(service: Service) -> list[Any]:
    with service.database.reading() as session:
        return jobs.page(session, limit=50)[0]


def test_the_other_address_keeps_what_it_names(client: TestClient, model: str) -> None:
    answer = client.get(f"/jobs/new?model={model}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, f"/new?model={model}")


def test_open_dimensions_are_asked_for_once_each(client: TestClient, model: str) -> None:
    page = client.get(f"/new?model={model}").text
    fields = dict(re.findall(r'<input id="dimension-\d" name="([^"]+)"[^>]*value="([^"]*)"', page))
    assert fields == {"symbol:batch": "1", "axis:x:2": ""}
    assert "batch×3×?×8" in page
    static = client.put("/v1/models?name=fixed", content=b"static model").json()["id"]
    assert "All inputs have fixed shapes" in client.get(f"/new?model={static}").text


@pytest.mark.usefixtures("_worker")
def test_targets_of_the_fleet_are_offered(client: TestClient, service: Service) -> None:
    page = client.get("/new").text
    assert '<option value="llvm -mcpu=znver3">' in page
    assert DEVICE.name in page
    ScriptedWorker(service).beat(id="gpu:1:1", accelerators=(GPU,))
    assert '<option value="cuda -arch=sm_90">' in client.get("/new").text
    assert GPU.name in client.get("/new").text
    other = client.get("/new?target=cuda -arch=sm_80").text
    assert 'value="other" selected' in other
    assert 'value="cuda -arch=sm_80"' in other


@pytest.mark.usefixtures("_worker")
def test_the_plan_is_seen_before_the_job_is_queued(
    client: TestClient, service: Service, filled: dict[str, str]
) -> None:
    planned = client.post("/new/plan", data=filled)
    assert planned.status_code == 200
    assert planned.text.count("Imports the whole model") == 2
    assert "0 of 2 tasks covered" in planned.text
    assert re.search(r"<strong>autotvm</strong>\s*<span>[^<]+ trials, \d+ min", planned.text)
    assert queued(service) == []
    answer = client.post("/new", data=filled | ticket(planned.text), follow_redirects=False)
    assert answer.status_code == 303
    [job] = queued(service)
    assert answer.headers["location"] == f"/jobs/{job.id}"
    assert job.request.input_shapes == {"x": (1, 3, 8, 8)}
    assert (job.request.budget.seconds, job.request.budget.trials) == (600, None)
    assert (service.publisher.rung, job.request.priority) == (1, 5)


@pytest.mark.usefixtures("_worker")
def test_pressing_twice_makes_one_job(client: TestClient, service: Service, filled: dict[str, str]) -> None:
    sent = filled | ticket(client.post("/new/plan", data=filled).text)
    places = {client.post("/new", data=sent, follow_redirects=False).headers["location"] for _ in range(2)}
    assert len(places) == len(queued(service)) == 1


@pytest.mark.usefixtures("_worker")
@pytest.mark.parametrize("path", ["/new", "/new/plan"])
@pytest.mark.parametrize("change", [{"text": "a\0b"}, {"a\0b": "text"}])
def test_a_text_that_no_database_can_store_is_refused(
    client: TestClient, service: Service, filled: dict[str, str], path: str, change: dict[str, str]
) -> None:
    answer = client.post(path, data=filled | change)
    assert answer.status_code == 400
    assert "NUL" in answer.text
    assert queued(service) == []


@pytest.mark.usefixtures("_worker")
def test_a_request_that_changed_is_planned_again(client: TestClient, service: Service, filled: dict[str, str]) -> None:
    first = ticket(client.post("/new/plan", data=filled).text)
    changed = filled | {"tuner": "ansor"}
    answer = client.post("/new", data=changed | first)
    assert "The request has changed since" in answer.text
    assert queued(service) == []
    assert client.post("/new", data=changed | ticket(answer.text), follow_redirects=False).status_code == 303


@pytest.mark.parametrize(
    ("changes", "anchor", "told", "code"),
    [
        ({"axis:x:2": ""}, "dimension-1", "without a fixed size", "shape_required"),
        ({"axis:x:2": "eight"}, "dimension-1", "must be an integer", "invalid_request"),
        ({"symbol:batch": "0"}, "dimension-0", "cannot be 0", "shape_mismatch"),
        ({"target": "other", "target_text": "lvm"}, "field-target", "unknown target 'lvm'", "unknown_target"),
        ({"target": "other", "target_text": ""}, "field-target", "unknown target ''", "unknown_target"),
        ({"tuner": "autotvn"}, "field-tuner", "unknown tuner", "unknown_tuner"),
        ({"tuner": "ansor", "precision": "bf16"}, "field-precision", "no schedules for bf16", "invalid_option"),
        ({"budget": "custom"}, "field-budget", "needs trials, seconds, or both", "invalid_budget"),
        ({"budget": "custom", "budget.trials": "many"}, "field-budget.trials", "must be an integer", "invalid_request"),
        ({"measure.number": "0"}, "field-measure.number", "Runs per repeat", "invalid_request"),
        (
            {"tuner": "ansor", "tuner_options.search": "ga"},
            "field-tuner_options.search",
            "does not support option",
            "invalid_option",
        ),
        ({"labels": "branch"}, "field-labels", "Not a label: 'branch'", "invalid_request"),
        ({"webhook.url": "https://a.example"}, "field-webhook.secret", "needs a secret", "invalid_request"),
        ({"model": "m-none"}, "field-model", "there is no model 'm-none'", "model_not_found"),
        ({"model": ""}, "field-model", "no model is selected", "model_not_found"),
        ({"runner": "rpc"}, None, "needs the address of a tracker", "invalid_option"),
    ],
)
def test_what_is_wrong_is_told_at_its_field_and_nothing_is_lost(
    client: TestClient, filled: dict[str, str], changes: dict[str, str], anchor: str | None, told: str, code: str
) -> None:
    sent = filled | {"threads": "3", "labels": "team=<b>a</b>"} | changes
    answer = client.post("/new/plan", data=sent)
    assert 400 <= answer.status_code < 500
    assert told.lower() in faults(answer.text).lower()
    assert code in faults(answer.text)
    if anchor:
        assert f'<a href="#{anchor}">' in answer.text
        assert f'id="{anchor}"' in answer.text
    assert re.search(r'name="threads"[^>]* value="3"', answer.text)
    assert "<b>a</b>" not in answer.text
    assert ticket(answer.text) == {}


def test_every_option_of_the_api_has_a_field() -> None:
    def names(schema: dict[str, Any], prefix: str = "") -> set[str]:
        found = set()
        for name, part in schema["properties"].items():
            references = [one["$ref"] for one in [part, *part.get("anyOf", ())] if "$ref" in one]
            inner = whole["$defs"][references[0].rpartition("/")[2]] if references else None
            found |= names(inner, f"{prefix}{name}.") if inner and "properties" in inner else {prefix + name}
        return found

    whole = drafts.ADAPTER.json_schema()
    # Frequencies are stated with the shapes.
    placed = {"model", "like", "target", "input_shapes", "frequencies", "tuner", "precision"}
    fields = {field.name for field in (*form_fields.ADVANCED, *form_fields.BUDGET_LIMITS)}
    assert names(whole) - placed <= fields


def test_auto_says_what_a_race_costs(client: TestClient, model: str) -> None:
    """The budget that is chosen at first races."""
    words = unescape(re.sub(r"\s+", " ", client.get(f"/new?model={model}").text))
    assert "selects a tuner; compares several from a budget of 10 min or 1000 trials" in words
    assert not racing.has_rivals(Budget(seconds=300))
    assert racing.has_rivals(Budget(seconds=600))
    assert racing.has_rivals(Budget(trials=1000))


def test_a_job_is_asked_for_again_with_all_it_asked(client: TestClient, service: Service, model: str) -> None:
    client.post("/v1/datasets?name=val", content=json.dumps({"x": ["float32", [4, 3, 16, 8]]}).encode())
    request = {
        "model": model,
        "input_shapes": {"x": [2, 3, 16, 8]},
        "target": "llvm -mcpu=skylake",
        "tuner": "autotvm",
        "precision": "fp16",
        "accuracy": {"top1": 0.9},
        "data": "val",
        "threads": 1,
        "budget": {"trials": 48, "seconds": 90, "total_seconds": 900},
        "measure": {"repeat": 5, "enable_cpu_cache_flush": True},
        "tuner_options": {"search": "ga", "rewrite": False},
        "bundle_format": "object",
        "runtimes": ["tvm"],
        "priority": 3,
        "group": "nightly",
        "labels": {"branch": "main", "team": "<i>x</i>"},
    }
    first = client.post("/v1/jobs", json=request).json()["id"]
    page = client.get(f"/new?like={first}")
    assert page.status_code == 200
    answer = client.post("/new", data=shown(page.text) | {"planned": "", "key": ""})
    client.post("/new", data=shown(answer.text) | ticket(answer.text), follow_redirects=False)
    again, before = queued(service)
    assert again.id != before.id
    assert again.request == before.request


def test_the_values_are_kept_when_a_model_is_selected(client: TestClient, model: str) -> None:
    sent = {"model": model, "threads": "3", "webhook.url": "https://a.example", "webhook.secret": "whsec_x"}
    page = client.post("/new/model", data=sent).text
    found = shown(page)
    assert {name: found[name] for name in sent} == sent
    assert (found["symbol:batch"], found["budget"]) == ("1", "600")
    # Nothing sends the form as a query, which would have the secret.
    assert 'formmethod="get"' not in page
    assert client.post("/new/model", data={"model": "m-none"}).status_code == 404


def test_the_usual_total_limit_follows_another_budget(client: TestClient, service: Service, model: str) -> None:
    request = {"model": model, "input_shapes": {"x": [2, 3, 16, 8]}, "budget": {"seconds": 120}}
    first = client.post("/v1/jobs", json=request).json()
    assert first["budget"]["total_seconds"] == 3720
    page = client.get(f"/new?like={first['id']}").text
    assert (shown(page)["budget"], shown(page)["budget.total_seconds"]) == ("120", "")
    changed = shown(client.post("/new", data=shown(page) | {"budget": "28800", "planned": "", "key": ""}).text)
    page = client.post("/new", data=changed | {"budget.total_seconds": "9000", "planned": "", "key": ""}).text
    client.post("/new", data=shown(page) | ticket(page), follow_redirects=False)
    assert queued(service)[0].request.budget == Budget(seconds=28800, total_seconds=9000)


def shown(page: str) -> dict[str, str]:
    """What a browser would send of the form."""
    found = {}
    for tag in re.findall(r"<input [^>]+>", page):
        attributes = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        is_left_out = attributes.get("type") == "radio" and " checked" not in tag
        if "name" in attributes and not is_left_out:
            found[attributes["name"]] = unescape(attributes.get("value", ""))
    for name, options in re.findall(r'<select [^>]*name="([^"]+)"[^>]*>(.*?)</select>', page, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)" selected>', options)
        found[name] = unescape(chosen[1]) if chosen else ""
    for name, text in re.findall(r'<textarea [^>]*name="([^"]+)"[^>]*>(.*?)</textarea>', page, re.DOTALL):
        found[name] = unescape(text)
    return found


def test_a_job_that_is_not_there_is_told(client: TestClient) -> None:
    page = client.get("/new?like=j-none")
    assert page.status_code == 404
    assert "job_not_found" in faults(page.text)


@pytest.mark.usefixtures("_worker")
def test_without_a_plan_the_job_can_be_queued(client: TestClient, service: Service, filled: dict[str, str]) -> None:
    service.planner.missing = {"onnx", "relay", "relax"}
    answer = client.post("/new/plan", data=filled)
    assert "No plan is available" in answer.text
    assert errors.EngineNotInstalled.code in answer.text
    assert client.post("/new", data=filled | ticket(answer.text), follow_redirects=False).status_code == 303


@pytest.mark.usefixtures("_worker")
def test_what_no_engine_takes_is_told(client: TestClient, service: Service, filled: dict[str, str]) -> None:
    service.planner.unsupported = {"relay": {"<b>Evil</b>": 2}, "relax": {"Det": 1}}
    page = client.post("/new/plan", data=filled).text
    assert "No engine can serve this request" in page
    assert "&lt;b&gt;Evil&lt;/b&gt;</span> (2×)" in page
    assert "<b>Evil</b>" not in page


def test_bodies_that_are_no_forms_are_refused(client: TestClient) -> None:
    for body in (b"\xff=1", b"&".join(b"a%d=1" % number for number in range(1001))):
        assert client.post("/new/plan", content=body).status_code == 400


def test_only_who_may_submit_sends_the_form(service: Service, filled: dict[str, str]) -> None:
    reader = visitor(service, "local", [Scope.READ])
    assert "lacks the scope" in reader.get("/new").text
    assert reader.post("/new/plan", data=filled).status_code == 403
    assert reader.post("/new", data=filled).status_code == 403


@pytest.mark.usefixtures("_worker")
def test_what_a_quota_refuses_is_told_and_nothing_is_lost(service: Service, filled: dict[str, str]) -> None:
    ada = visitor(service, "ada", quota=Quota(queued_jobs=1))
    ada.put("/v1/models?name=net.onnx", content=b"dynamic model")
    for status in (303, 429):
        sent = filled | {"threads": "3"}
        answer = ada.post("/new", data=sent | ticket(ada.post("/new/plan", data=sent).text), follow_redirects=False)
        assert answer.status_code == status
    assert errors.QuotaExceeded.code in faults(answer.text)
    assert re.search(r'name="threads"[^>]* value="3"', answer.text)
    assert len(queued(service)) == 1


def test_others_models_and_jobs_are_not_offered(client: TestClient, service: Service, filled: dict[str, str]) -> None:
    document = {"model": filled["model"], "input_shapes": SHAPES}
    theirs = client.post("/v1/jobs", json=document).json()["id"]
    ada = visitor(service, "ada")
    assert filled["model"] not in ada.get("/new").text
    for address in (f"/new?model={filled['model']}", f"/new?like={theirs}"):
        page = ada.get(address)
        assert page.status_code == 404
        assert "net.onnx" not in page.text
    assert "model_not_found" in faults(ada.post("/new/plan", data=filled).text)
