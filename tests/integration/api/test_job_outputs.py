from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from api.jobs import schemas as job_schemas
from domain import artifacts, profiles
from domain.jobs import Failure
from storage import job_logs
from tests.support.api.factories import AUTHORIZED, Service
from tests.support.api.live import serving
from tests.support.api.scripted import ScriptedWorker


def parsed(lines: Iterable[str]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{}]
    for line in lines:
        if not line:
            events.append({})
        elif not line.startswith(":"):
            name, value = line.split(": ", 1)
            events[-1][name] = json.loads(value) if name == "data" else value
    return [event for event in events if event]


def test_events_tell_the_whole_job_and_end_with_it(client: TestClient, service: Service, job: str) -> None:
    ScriptedWorker(service, trials=2).run(job)
    answer = client.get(f"/v1/jobs/{job}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = parsed(answer.text.splitlines())
    assert [int(event["id"]) for event in events] == sorted({int(event["id"]) for event in events})
    assert [event["data"]["state"] for event in events if event["event"] == "state"] == [
        "queued",
        "running",
        "succeeded",
    ]
    progress = [event["data"] for event in events if event["event"] == "progress"]
    assert len(progress) == 8
    assert [task["position"] for told in progress for task in told["tasks"]] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert all("at" in event["data"] for event in events)


def test_events_go_on_after_the_last_one_seen(client: TestClient, service: Service, job: str) -> None:
    ScriptedWorker(service, trials=2).run(job)
    every = parsed(client.get(f"/v1/jobs/{job}/events").text.splitlines())
    rest = client.get(f"/v1/jobs/{job}/events", headers={"Last-Event-ID": every[4]["id"]})
    assert parsed(rest.text.splitlines()) == every[5:]
    after_the_end = client.get(f"/v1/jobs/{job}/events", headers={"Last-Event-ID": every[-1]["id"]})
    assert parsed(after_the_end.text.splitlines()) == []
    for header in ("x", "9" * 30):
        wrong = client.get(f"/v1/jobs/{job}/events", headers={"Last-Event-ID": header})
        assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_request")


def test_events_come_while_the_job_runs(service: Service, job: str) -> None:
    worker = threading.Thread(target=ScriptedWorker(service, pace=0.02, trials=2).run, args=[job])
    with (
        serving(service) as url,
        httpx.Client(base_url=url, headers=AUTHORIZED, trust_env=False) as http,
        http.stream("GET", f"/v1/jobs/{job}/events") as stream,
    ):
        worker.start()
        arrivals = [time.monotonic() for line in stream.iter_lines() if line.startswith("event: progress")]
    worker.join()
    assert len(arrivals) == 8
    assert arrivals[-1] - arrivals[0] > 0.08


def test_the_log_is_read_from_its_end_or_from_an_offset(client: TestClient, service: Service, job: str) -> None:
    empty = client.get(f"/v1/jobs/{job}/log")
    assert (empty.status_code, empty.text, empty.headers["Tunesmith-Next-Offset"]) == (200, "", "0")
    service.logs.mkdir(parents=True)
    (service.logs / f"{job}.log").write_bytes(b"a" * 70_000 + b"the end\n")
    end = client.get(f"/v1/jobs/{job}/log")
    assert end.text.endswith("the end\n")
    assert (len(end.text), end.headers["Tunesmith-Next-Offset"]) == (65536, "70008")
    assert client.get(f"/v1/jobs/{job}/log?offset=70004").text == "end\n"
    assert client.get(f"/v1/jobs/{job}/log?offset=999999").text == ""
    assert client.get(f"/v1/jobs/{job}/log?offset=-1").status_code == 400


def test_a_log_that_lies_on_another_host_is_read_from_the_database(
    client: TestClient, service: Service, job: str
) -> None:
    text = b"a" * 70_000 + b"the end\n"
    with service.database.transaction() as session:
        job_logs.keep(session, job, 1, job_logs.Tail(start=1000, content=text))
    end = client.get(f"/v1/jobs/{job}/log")
    assert end.text.endswith("the end\n")
    assert (len(end.text), end.headers["Tunesmith-Next-Offset"]) == (65536, "71008")
    assert client.get(f"/v1/jobs/{job}/log?offset=71004").text == "end\n"
    assert client.get(f"/v1/jobs/{job}/log?offset=999999").headers["Tunesmith-Next-Offset"] == "71008"
    whole = client.get(f"/v1/jobs/{job}/log?offset=0")
    assert (whole.text, whole.headers["Tunesmith-Next-Offset"]) == (text.decode(), "71008")
    assert "the end" in client.get(f"/jobs/{job}").text


@pytest.mark.parametrize(
    ("here", "told"), [(b"here\n", "elsewhere\n"), (b"as long..\n", "as long..\n"), (b"", "elsewhere\n")]
)
def test_a_file_that_is_here_is_read_if_it_is_as_long(
    client: TestClient, service: Service, job: str, here: bytes, told: str
) -> None:
    with service.database.transaction() as session:
        job_logs.keep(session, job, 1, job_logs.Tail(start=0, content=b"elsewhere\n"))
    service.logs.mkdir(parents=True)
    (service.logs / f"{job}.log").write_bytes(here)
    assert client.get(f"/v1/jobs/{job}/log").text == told


def test_records_are_the_tuners_own_lines(client: TestClient, service: Service, job: str) -> None:
    ScriptedWorker(service, trials=2).begin(job)
    lines = client.get(f"/v1/jobs/{job}/records").text.splitlines()
    assert [json.loads(line) for line in lines][:2] == [{"task": 0, "trial": 0}, {"task": 0, "trial": 1}]
    assert len(lines) == 8


def test_a_report_comes_with_success(client: TestClient, service: Service, job: str) -> None:
    early = client.get(f"/v1/jobs/{job}/report")
    assert (early.status_code, early.json()["code"]) == (409, "job_not_finished")
    ScriptedWorker(service).run(job, gain=1.5)
    report = client.get(f"/v1/jobs/{job}/report").json()
    assert report["published"] == "tuned"
    assert set(report["timings"]) == {"reference", "untuned", "tuned"}
    assert report["verifications"]["tuned"]["passed"] is True
    assert [(each["name"], each["trials"], each["verdict"]) for each in report["portfolio"]] == [
        ("autotvm", 64, "published"),
        ("untuned relay", 0, "slower"),
        ("ansor", 16, "too slow"),
    ]
    error = report["verifications"]["tuned"]["outputs"][0]
    assert (error["max_abs"], error["top1"], error["least_top1"], error["not_finite"]) == (3.6e-7, 1.0, None, 0)
    assert error["not_compared"] is False
    assert (report["verifications"]["tuned"]["inputs"], report["precision"]) == ({"x": "image"}, "f32")


def test_a_report_tells_conditions_and_certainty(client: TestClient, service: Service, job: str) -> None:
    ScriptedWorker(service).run(job, gain=2.0)
    report = client.get(f"/v1/jobs/{job}/report").json()
    timing = report["timings"]["tuned"]
    assert (timing["ci_low"], timing["ci_high"]) == pytest.approx((0.0004 * 0.99, 0.0004 * 1.02))
    assert report["conditions"] == {
        "device": "Zen",
        "threads": 2,
        "governor": None,
        "megahertz": [3000.0, 3700.0],
        "load": 0.25,
        "drift": 0.08,
        "attempts": 3,
        "noisy": True,
        "reasons": ["the calibration loop varied by 8%"],
    }


def test_a_profile_comes_with_success(client: TestClient, service: Service, job: str) -> None:
    early = client.get(f"/v1/jobs/{job}/profile")
    assert (early.status_code, early.json()["code"]) == (409, "job_not_finished")
    ScriptedWorker(service).run(job)
    profile = client.get(f"/v1/jobs/{job}/profile").json()
    first, second, *_ = profile["operators"]
    assert (first["loss"], first["bound"], first["task"]) == (pytest.approx(0.2e-3), "compute", 0)
    assert (second["alone_seconds"], second["nodes"]) == (None, [])
    for ours, outside, whole in (
        ("seconds", "outside", "seconds"),
        ("reference_seconds", "reference_outside", "reference_seconds"),
        ("openvino_seconds", "openvino_outside", "openvino_seconds"),
    ):
        assert sum(each[ours] for each in profile["operators"]) + profile[outside] == pytest.approx(profile[whole])


@pytest.mark.parametrize(
    "kind",
    [
        profiles.Bandwidth,
        profiles.OperatorTime,
        profiles.Peak,
        profiles.Profile,
        artifacts.Report,
        artifacts.Timing,
        artifacts.OutputError,
        artifacts.Verification,
        artifacts.FailedTask,
        artifacts.Contender,
        artifacts.Conditions,
    ],
)
def test_nothing_of_a_report_is_left_out(kind: Any) -> None:
    """Models leave out silently what they do not know."""
    told = set(getattr(job_schemas, kind.__name__).model_fields)
    # A verification stands under its variant.
    assert {field.name for field in fields(kind)} - {"variant"} <= told


def test_a_failed_job_has_no_report(client: TestClient, service: Service, job: str) -> None:
    ScriptedWorker(service).fail(job, Failure(code="verification_failed", message="wrong"))
    answer = client.get(f"/v1/jobs/{job}/report")
    assert (answer.status_code, answer.json()["code"]) == (404, "artifact_not_found")
    answer = client.get(f"/v1/jobs/{job}/profile")
    assert (answer.status_code, answer.json()["code"]) == (404, "artifact_not_found")
    assert "was not benchmarked" in answer.json()["detail"]
