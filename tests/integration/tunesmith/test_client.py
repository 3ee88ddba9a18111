from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.api.factories import TOKEN, Service
from tests.support.api.live import serving
from tests.support.api.scripted import ScriptedWorker
from tunesmith import Client, connection, errors
from tunesmith.events import Event, parse


def test_upload_tune_wait_download(client: Client, worker: ScriptedWorker, onnx: Path, tmp_path: Path) -> None:
    sent: list[tuple[int, int]] = []
    model = client.upload(onnx, progress=lambda done, total: sent.append((done, total)))
    assert (model.name, model.created, sent[-1]) == ("net", True, (12, 12))
    seen: list[Event] = []
    job = client.tune(model, tuner="autotvm", seconds=300).wait(progress=seen.append)
    assert job.state == "succeeded"
    assert [event.data["stage"] for event in seen if event.kind == "stage" and event.data["status"] == "finished"] == [
        "import",
        "baseline",
        "plan",
        "tune",
        "compile",
        "verify",
        "benchmark",
        "publish",
    ]
    assert job.report()["summary"] == "Tuning made it 1.40× as fast: 0.571 ms against 0.800 ms untuned."
    assert len(job.records().splitlines()) == 12
    path = job.artifact.download(tmp_path)
    assert path.name == f"{job.artifact.id}.tar"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == job.artifact.digest
    assert client.best(model, target="native").why


def test_errors_carry_the_servers_words(client: Client, onnx: Path) -> None:
    with pytest.raises(errors.RequestRejected) as caught:
        client.tune(client.upload(onnx), tuner="autotvn")
    assert (caught.value.code, caught.value.status) == ("unknown_tuner", 400)
    assert caught.value.details["near_matches"] == ["autotvm", "auto"]
    with pytest.raises(errors.NotFound):
        client.job("j-none")
    job = client.tune(client.upload(onnx))
    with pytest.raises(errors.Conflict):
        job.report()
    job.cancel()
    with pytest.raises(errors.JobCanceled):
        job.wait()
    with pytest.raises(errors.NotFound):
        _ = job.artifact


@pytest.mark.parametrize("name", ["a/b", "..", "?state=queued", "#", "ä b%2F", "j-1:cancel"])
def test_names_stay_names(client: Client, name: str) -> None:
    for ask in (client.job, client.model, client.artifact):
        with pytest.raises(errors.NotFound):
            ask(name)


def test_an_empty_name_is_none(client: Client) -> None:
    for ask in (client.job, client.model, client.artifact, client.cancel_group):
        with pytest.raises(errors.InvalidInput):
            ask("")


def test_a_server_that_restarts_is_waited_for(service: Service, onnx: Path) -> None:
    with serving(service) as url:
        port = int(url.rsplit(":", 1)[1])
        client = Client(url, TOKEN)
        job = client.tune(client.upload(onnx))
        watched = job.events()
        first = next(watched)
    # Down now: the watcher is in the middle of its stream.
    service.app.state.services.stopping.clear()
    ScriptedWorker(service).run(job.id)
    with client, serving(service, port=port):
        rest = list(watched)
    ids = [event.id for event in (first, *rest)]
    assert ids == sorted(set(ids))
    assert rest[-1].data["state"] == "succeeded"


def test_the_token_of_the_home_goes_to_its_own_server_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))
    monkeypatch.delenv("TUNESMITH_TOKEN", raising=False)
    (tmp_path / "server.json").write_text('{"url": "http://127.0.0.1:1234", "token": "secret"}')
    assert connection.find().token == "secret"
    assert connection.find("http://127.0.0.1:1234/").token == "secret"
    assert connection.find("http://elsewhere:1234").token is None
    assert "secret" not in repr(connection.find())
    with pytest.raises(errors.ConfigurationError):
        connection.find("elsewhere")
    (tmp_path / "server.json").write_text("half a f")
    with pytest.raises(errors.ConfigurationError):
        connection.find()


def test_pages_are_fetched_as_they_are_needed(client: Client, onnx: Path) -> None:
    for number in range(55):
        onnx.write_bytes(f"static {number}".encode())
        client.upload(onnx)
    assert len({model.id for model in client.models()}) == 55


def test_events_are_read_as_the_standard_says() -> None:
    lines = [
        ": ping", "", "id: 1", "event: note", 'data: {"message":', 'data:  "x"}', "",
        "id: x", "data: {}", "", "data: []", "id: 2", "", "id:3", "event:state", 'data:{"state": "failed"}', "",
    ]  # fmt: skip
    assert [(event.id, event.kind, event.data) for event in parse(lines)] == [
        (1, "note", {"message": "x"}),
        (3, "state", {"state": "failed"}),
    ]


def test_the_token_may_stand_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_URL", "http://127.0.0.1:1")
    monkeypatch.delenv("TUNESMITH_TOKEN", raising=False)
    (tmp_path / "token").write_text("s3cret\n")
    monkeypatch.setenv("TUNESMITH_TOKEN_FILE", str(tmp_path / "token"))
    assert connection.find().token == "s3cret"
    monkeypatch.setenv("TUNESMITH_TOKEN_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(errors.ConfigurationError, match="TUNESMITH_TOKEN_FILE"):
        connection.find()
