"""Jobs of several sizes in the dashboard: the form, the page of the job, and that of a part."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape
from typing import Any

import pytest
from fastapi.testclient import TestClient

from domain.jobs import EventKind, Job, JobState, Stage
from storage import artifacts, events, jobs
from tests.integration.dashboard.test_job_page import look
from tests.integration.dashboard.test_new_job import ticket
from tests.support.api.factories import TOOLCHAINS, Service
from tests.support.api.scripted import ScriptedWorker
from tests.support.storage.factories import artifact


def fields(model: str, **values: str) -> dict[str, str]:
    return {
        "model": model,
        "symbol:batch": "1/4",
        "axis:x:2": "8",
        "target": "native",
        "tuner": "auto",
        "budget": "600",
        **values,
    }


def text(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def submit(client: TestClient, service: Service, filled: dict[str, str]) -> Job:
    planned = client.post("/new/plan", data=filled)
    assert "sizes, one bundle" in planned.text, text(planned.text)
    answer = client.post("/new", data=filled | ticket(planned.text), follow_redirects=False)
    assert answer.status_code == 303, text(answer.text)
    with service.database.reading() as session:
        return jobs.get(session, answer.headers["location"].rpartition("/")[2])


def test_the_form_accepts_several_values(client: TestClient, service: Service, model: str) -> None:
    ScriptedWorker(service).beat(toolchains=tuple(TOOLCHAINS.values()))
    job = submit(client, service, fields(model, **{"axis:x:2": " 5@3/7@1 ", "padding": "x=0.5\n"}))
    assert [(size.name, size.share) for size in job.request.sizes] == [
        ("batch=1, x.2=5", pytest.approx(0.375)),
        ("batch=1, x.2=7", pytest.approx(0.125)),
        ("batch=4, x.2=5", pytest.approx(0.375)),
        ("batch=4, x.2=7", pytest.approx(0.125)),
    ]
    assert job.request.padding == {"x": 0.5}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"symbol:batch": "1/x"}, "Batch: must be an integer"),
        ({"symbol:batch": "1/1"}, "has 1 more than once"),
        ({"padding": "x"}, "Not a padding: 'x'"),
        ({"padding": "y=1"}, "Padding names 'y'"),
        ({"runner": "none"}, "Runner 'none' builds one size"),
    ],
)
def test_the_form_names_what_is_wrong(client: TestClient, model: str, values: dict[str, str], said: str) -> None:
    page = client.post("/new/plan", data=fields(model, **values)).text
    assert said in text(page)
    assert ticket(page) == {}


def test_a_copied_form_has_the_sizes(client: TestClient, service: Service, model: str) -> None:
    job = submit(client, service, fields(model, **{"symbol:batch": "1@3/4@1", "padding": "x=0"}))
    page = client.get(f"/new?like={job.id}").text
    shown = dict(re.findall(r'<input id="dimension-\d" name="([^"]+)"[^>]*value="([^"]*)"', page))
    assert shown == {"symbol:batch": "1@75/4@25", "axis:x:2": "8"}
    assert re.search(r'<textarea[^>]*name="padding"[^>]*>x=0</textarea>', page)
    assert 'name="runtimes" type="text" autocomplete="off" spellcheck="false" value=""' in page
    job = submit(client, service, fields(model))
    assert 'value="1/4"' in client.get(f"/new?like={job.id}").text


@pytest.mark.parametrize(
    "values",
    [
        # The rarer size has more than its share, so that the shares are not the frequencies.
        {"symbol:batch": "1@99/4@1", "axis:x:2": "8"},
        {"symbol:batch": "1@60/4@40", "axis:x:2": "5@75/7@25"},
    ],
)
def test_a_copied_form_has_the_frequencies(
    client: TestClient, service: Service, model: str, values: dict[str, str]
) -> None:
    job = submit(client, service, fields(model, **values))
    page = client.get(f"/new?like={job.id}").text
    assert dict(re.findall(r'<input id="dimension-\d" name="([^"]+)"[^>]*value="([^"]*)"', page)) == values


def test_the_page_lists_the_sizes_while_they_are_tuned(client: TestClient, service: Service, model: str) -> None:
    worker = ScriptedWorker(service)
    job = submit(client, service, fields(model))
    lease = worker.claim(job.id)
    with service.database.transaction() as session:
        parts = jobs.parts(session, job.id)
        now = datetime.now(UTC)
        jobs.claim(session, parts[0].id, worker_id="w", now=now, lease_seconds=60, max_attempts=3)
        jobs.set_stage(session, job.id, lease, Stage.TUNE)
        said = "size 1 of 2 (batch=1): tune, 12 of 300 trials"
        data: dict[str, Any] = {"stage": "tune", "status": "working", "message": said, "share": 0.37}
        events.append(session, job.id, EventKind.STAGE, data, now=now)
    page = look(client, job.id)
    assert said in text(page)
    assert 'value="0.37"' in page
    for part in parts:
        assert f'href="/jobs/{part.id}"' in page
    assert "batch=4" in text(page)
    assert "x (1/4)×3×8×8" in text(page)
    part_page = look(client, parts[0].id)
    assert f'href="/jobs/{job.id}"' in part_page
    assert "One size of a job of several : x 1×3×8×8" in text(part_page)
    assert f'action="/jobs/{parts[0].id}/cancel"' not in part_page
    assert "Its turn comes" in text(look(client, parts[1].id))
    fragment = client.get(f"/jobs/{job.id}", headers={"HX-Request": "true"}).text
    assert 'id="job-sizes"' in fragment


def test_a_finished_job_shows_the_sizes_of_its_bundle(client: TestClient, service: Service, model: str) -> None:
    job = submit(client, service, fields(model))
    worker = ScriptedWorker(service)
    lease = worker.claim(job.id)
    with service.database.transaction() as session:
        made = artifact(
            job.id, model_digest=job.request.model_digest, sizes=job.request.sizes, input_shapes={"x": (0, 3, 8, 8)}
        )
        published = artifacts.add(session, made)
        jobs.finish(session, job.id, lease, state=JobState.SUCCEEDED, artifact_id=published.id, now=datetime.now(UTC))
    assert "Sizes batch=1; batch=4" in text(look(client, job.id))
    assert "x (1/4)×3×8×8" in text(client.get(f"/models/{model}").text)
    assert client.get(f"/compare?job={job.id}&job={job.id}").status_code == 200
    listing = client.get("/").text
    assert listing.count('href="/jobs/j-') == 1
