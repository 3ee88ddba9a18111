"""The real client and command line against a real server, whose jobs a scripted worker works on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.jobs import JobState
from storage import jobs
from tests.support.api.factories import TOKEN, Service, open_service
from tests.support.api.live import serving
from tests.support.api.scripted import ScriptedWorker
from tunesmith.client import Client


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "server").mkdir()
    with open_service(tmp_path / "server") as made:
        yield made


@pytest.fixture
def url(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that the home folder knows."""
    with serving(service) as url:
        _make_known(url, tmp_path, monkeypatch)
        yield url


@pytest.fixture(scope="module")
def lasting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with open_service(tmp_path_factory.mktemp("server")) as made, serving(made) as url:
        yield url


@pytest.fixture
def lasting_url(lasting_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``url``, of a server that the tests of a module share: for requests that are refused."""
    _make_known(lasting_server, tmp_path, monkeypatch)


def _make_known(url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TUNESMITH_URL", "TUNESMITH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TUNESMITH_HOME", str(home))
    monkeypatch.chdir(home)
    (home / "server.json").write_text(json.dumps({"url": url, "token": TOKEN}))


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client() as client:
        yield client


@pytest.fixture
def worker(service: Service) -> Iterator[ScriptedWorker]:
    """Works on every job that comes, until the test ends."""
    made, done = ScriptedWorker(service, pace=0.01, trials=3), threading.Event()
    made.beat()

    def work() -> None:
        while not done.wait(0.02):
            with service.database.reading() as session:
                queued, _ = jobs.page(session, limit=100, state=JobState.QUEUED)
            for job in reversed(queued):
                made.run(job.id)

    thread = threading.Thread(target=work)
    thread.start()
    yield made
    done.set()
    thread.join(timeout=10)


@pytest.fixture
def onnx(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"static model")
    return path
