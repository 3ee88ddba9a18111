"""Jobs like others, in groups, that tell of their end; and how the SDK asks for them."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.factories import TOKEN, Service, make_service
from tests.support.api.live import serving
from tests.support.api.scripted import ScriptedWorker
from tests.support.tunesmith.commands import parsed, run
from tunesmith import Budget, Client, errors
from tunesmith.events import Event

Capture = pytest.CaptureFixture[str]
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
HOOK = "https://hooks.example.com/tuned"


@pytest.mark.usefixtures("url")
def test_a_job_like_another(capsys: Capture, onnx: Path) -> None:
    asked = [
        "--tuner",
        "autotvm",
        "--trials",
        "64",
        "--input-shape",
        "x:1,3,8,8",
        "--label",
        "team=vision",
        "--group",
        "g1",
    ]
    old = parsed(capsys, "tune", onnx, "--no-wait", *asked)
    new = parsed(capsys, "tune", "--like", old["id"], "--no-wait", "--trials", 128, "--label", "try=2")
    same = [
        "model",
        "tuner",
        "target",
        "runner",
        "precision",
        "bundle_format",
        "input_shapes",
        "group",
        "tuner_options",
    ]
    assert [new[name] for name in same] == [old[name] for name in same]
    assert new["id"] != old["id"]
    assert (new["budget"]["trials"], new["labels"]) == (128, {"team": "vision", "try": "2"})
    changed = parsed(capsys, "tune", "--like", old["id"], "--no-wait", "--tuner", "ansor", "--group", "g2")
    assert (changed["tuner"], changed["group"], changed["budget"]) == ("ansor", "g2", old["budget"])
    other = onnx.with_name("other.onnx")
    other.write_bytes(b"static model of another kind")
    assert parsed(capsys, "tune", other, "--like", old["id"], "--no-wait")["model"] != old["model"]
    status, _, err = run(capsys, "tune", "--like", "j-none", "--no-wait")
    assert (status, "error[job_not_found]" in err) == (5, True)
    assert run(capsys, "tune", onnx, "--operator", "matmul x=2,2 w=2,2")[0] == 2


@pytest.mark.usefixtures("url")
def test_groups_are_listed_and_canceled(capsys: Capture, onnx: Path) -> None:
    first = parsed(capsys, "tune", onnx, "--no-wait", "--group", "nightly", "--label", "a=b")["id"]
    second = parsed(capsys, "tune", onnx, "--no-wait", "--group", "nightly")["id"]
    other = parsed(capsys, "tune", onnx, "--no-wait")["id"]
    assert [job["id"] for job in parsed(capsys, "jobs", "--group", "nightly")] == [second, first]
    assert [job["id"] for job in parsed(capsys, "jobs", "--group", "nightly", "--label", "a=b")] == [first]
    assert [job["id"] for job in parsed(capsys, "jobs", "--text", other)] == [other]
    assert "no matching jobs" in run(capsys, "jobs", "--state", "failed")[2]
    _, out, _ = run(capsys, "groups")
    assert out.splitlines()[1].split()[:4] == ["nightly", "2", "2", "queued"]
    assert parsed(capsys, "groups")[0]["newest_job"] == second
    assert "group     nightly" in run(capsys, "status", first)[1]
    assert run(capsys, "cancel", "--group", "nightly")[1].strip() == "group nightly: 2 canceled"
    assert parsed(capsys, "status", other)["state"] == "queued"
    status, _, err = run(capsys, "cancel", "--group", "nosuch")
    assert (status, "hint: List the groups: tunesmith groups" in err) == (5, True)
    assert (run(capsys, "cancel")[0], run(capsys, "cancel", other, "--group", "nightly")[0]) == (2, 2)
    status, _, err = run(capsys, "jobs", "--state", "done")
    assert (status, err.startswith("error[")) == (5, True)


@pytest.mark.usefixtures("url")
def test_queued_jobs_show_their_place(capsys: Capture, service: Service, onnx: Path) -> None:
    ScriptedWorker(service).beat()
    first = run(capsys, "tune", onnx, "--no-wait")[1].strip()
    _, out, err = run(capsys, "tune", onnx, "--no-wait")
    second = out.strip()
    assert f"job {second} is in the queue: place 2, after {first}" in err
    rows = run(capsys, "jobs")[1].splitlines()[1:]
    assert [row.split()[:3] for row in rows] == [[second, "queued", "#2"], [first, "queued", "#1"]]
    assert "queue     next, when a worker is free" in run(capsys, "status", first)[1]
    assert f"queue     place 2, after {first}" in run(capsys, "status", second)[1]


def test_a_webhook_and_its_deliveries(
    capsys: Capture, url: str, service: Service, onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, err = run(capsys, "tune", onnx, "--no-wait", "--webhook", HOOK)
    job = out.strip()
    assert (status, f"messages to {HOOK} are signed with whsec_" in err, "not shown again" in err) == (0, True, True)
    status, out, err = run(capsys, "deliveries", job)
    assert (status, out) == (0, "")
    assert f"to {HOOK}\nno message was sent yet" in err
    status, _, err = run(capsys, "deliveries", job, "--resend")
    assert (status, err.startswith("error[")) == (5, True)
    ScriptedWorker(service).run(job)
    _, out, err = run(capsys, "deliveries", job)
    assert out.splitlines()[1].split()[1:3] == ["pending", "0"]
    (sent,) = parsed(capsys, "deliveries", job)["deliveries"]
    assert parsed(capsys, "deliveries", job, "--resend")["deliveries"][0]["id"] == sent["id"]
    monkeypatch.setenv("TUNESMITH_WEBHOOK_SECRET", SECRET)
    status, out, err = run(capsys, "tune", onnx, "--no-wait", "--webhook", HOOK)
    assert (status, "signed" in err, SECRET in out + err) == (0, False, False)
    status, _, err = run(capsys, "tune", onnx, "--no-wait", "--webhook", "http://127.0.0.1/")
    assert (status, "error[invalid_webhook]" in err, "hint: " in err) == (5, True, True)
    plain = run(capsys, "tune", onnx, "--no-wait")[1].strip()
    assert "has no webhook" in run(capsys, "deliveries", plain)[2]


def test_a_total_limit_is_copied_if_it_was_asked_for(client: Client, onnx: Path) -> None:
    usual = client.tune(client.upload(onnx), budget="60s")
    assert client.tune(like=usual, budget="2h").data["budget"]["total_seconds"] == 3600 + 7200
    short = client.tune(like=usual, total_seconds=90)
    assert short.data["budget"] == {"trials": None, "seconds": 60.0, "total_seconds": 90.0}
    assert client.tune(like=short, seconds=30).data["budget"]["total_seconds"] == 90.0
    both = client.tune(like=usual, budget=Budget(trials=8, total_seconds=120))
    assert both.data["budget"] == {"trials": 8, "seconds": 60.0, "total_seconds": 120.0}


def test_the_sdk_asks_in_pythons_words(client: Client, service: Service, onnx: Path) -> None:
    model = client.upload(onnx)
    old = client.tune(model, tuner="autotvm", budget="10m", labels={"a": "b"}, group="g", priority=2)
    limits = {"trials": None, "seconds": 600.0, "total_seconds": 4200.0}
    assert (old.data["budget"], old.labels, old.group) == (limits, {"a": "b"}, "g")
    new = client.tune(like=old, budget=Budget(trials=8, seconds=60))
    limits = {"trials": 8, "seconds": 60.0, "total_seconds": 3660.0}
    assert (new.data["tuner"], new.data["budget"]) == ("autotvm", limits)
    with pytest.raises(errors.InvalidInput):
        client.tune()
    with pytest.raises(errors.InvalidRequest) as caught:
        client.tune(model, trials=0)
    assert caught.value.code == "invalid_budget"
    hour = timedelta(hours=1)
    now = datetime.now(UTC)
    assert {job.id for job in client.jobs(model=model, group="g", created_after=now - hour)} == {old.id, new.id}
    assert list(client.jobs(created_before=now - hour)) == []
    hooked = client.tune(model, webhook={"url": HOOK, "secret": SECRET})
    assert hooked.deliveries() == {"url": HOOK, "deliveries": []}
    with pytest.raises(errors.Conflict):
        hooked.resend()
    ScriptedWorker(service).run(hooked.id)
    assert len(hooked.resend()["deliveries"]) == 1
    assert [group["name"] for group in client.groups()] == ["g"]
    assert client.cancel_group("g")["counts"] == {"canceled": 2}
    with pytest.raises(errors.NotFound):
        client.cancel_group("a/b c")


def test_a_server_that_wants_patience_gets_it(tmp_path: Path) -> None:
    limited = make_service(tmp_path, rate_per_second=4.0, rate_burst=2)
    started = time.monotonic()
    with serving(limited) as url, Client(url, TOKEN) as client, Client(url, TOKEN, retries=0) as hasty:
        answers = [list(client.models()) for _ in range(4)]
        with pytest.raises(errors.TooMuch) as caught:
            _ask_often(hasty)
    limited.database.close()
    assert answers == [[]] * 4
    assert time.monotonic() - started >= 1.0
    assert caught.value.retry_after == 1.0


def _ask_often(client: Client) -> None:
    for _ in range(4):
        list(client.models())


def test_waiting_can_be_watched(
    client: Client, worker: ScriptedWorker, onnx: Path, capsys: Capture, tmp_path: Path
) -> None:
    seen: list[Event] = []
    job = client.tune(client.upload(onnx), budget=30).wait(progress=True).wait(progress=seen.append)
    err = capsys.readouterr().err
    assert "import took" in err
    assert "job succeeded" in err
    assert seen[-1].data["state"] == "succeeded"
    assert list(job.events(after=seen[-1].id)) == []
    fetched: list[tuple[int, int]] = []
    artifact = job.artifact
    path = artifact.download(tmp_path, progress=lambda there, total: fetched.append((there, total)))
    assert fetched[-1] == (artifact.size_bytes, artifact.size_bytes)
    assert (path.stat().st_size, artifact.toolchain[:6]) == (artifact.size_bytes, "relay/")
    assert artifact.median_seconds == artifact.report["timings"]["tuned"]["median"]
    assert [one.id for one in client.artifacts(model=job.data["model"])] == [artifact.id]
    assert [one.id for one in client.artifacts(target=artifact.target, precision="f32")] == [artifact.id]
    assert list(client.artifacts(device="another")) == []
    assert [len(list(client.models(name=name))) for name in ("NE", "else")] == [1, 0]
    log, offset = job.log()
    assert (log, offset) == ("", 0)
    for ask in (job.cancel, job.retry):
        with pytest.raises(errors.Conflict) as caught:
            ask()
        assert caught.value.code == "job_already_finished"


@pytest.mark.parametrize("budget", [float("nan"), float("inf"), Budget(seconds=float("nan")), "9" * 400, "9" * 5000])
def test_a_budget_that_is_no_number(client: Client, onnx: Path, budget: Any) -> None:
    model = client.upload(onnx)
    with pytest.raises(errors.InvalidInput) as caught:
        client.tune(model, budget=budget)
    assert (caught.value.code, bool(caught.value.hint)) == ("invalid_budget", True)
    with pytest.raises(errors.InvalidInput, match=r"measure\.timeout is nan"):
        client.plan(model, measure={"timeout": float("nan")})
    assert list(client.jobs()) == []
