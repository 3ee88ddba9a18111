"""Uploads and downloads pass through in constant memory, as the server's own process sees it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import update

from storage.tables import ArtifactRow
from tests.support.api.factories import AUTHORIZED, make_service
from tests.support.api.scripted import ScriptedWorker
from tests.support.waiting import until

_MIB = 1024 * 1024
_MOST_GROWTH = 24 * _MIB
_UPLOAD, _DOWNLOAD = 512 * _MIB, 1024 * _MIB
_PROGRAM = """
import sys
from pathlib import Path
from tests.support.api.factories import make_service
from tests.support.api.live import serving
service = make_service(Path(sys.argv[1]))
with serving(service) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


@dataclass
class Peak:
    """The most memory that a process had since ``start``."""

    process: psutil.Process
    before: int = 0
    most: int = 0
    _done: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def watched(self) -> Iterator[None]:
        self.before = self.most = self.process.memory_info().rss
        self._done.clear()
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()

    @property
    def growth(self) -> int:
        return self.most - self.before

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self.most = max(self.most, self.process.memory_info().rss)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("transfers")


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[tuple[httpx.Client, Peak]]:
    """A server in a process of its own, which has answered before."""
    command = [sys.executable, "-c", _PROGRAM, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        url = process.stdout.readline().strip()
        with httpx.Client(base_url=url, headers=AUTHORIZED, trust_env=False, timeout=120) as http:
            assert http.put("/v1/models", content=_chunks(4 * _MIB)).status_code == 201
            yield http, Peak(psutil.Process(process.pid))
        process.stdin.close()
        process.wait(timeout=20)


def _chunks(size: int) -> Iterator[bytes]:
    for number in range(size // _MIB):
        yield bytes([number % 256]) * _MIB


@pytest.fixture(scope="module")
def bundle(server: tuple[httpx.Client, Peak], home: Path) -> tuple[str, Path]:
    """Address and file of a bundle that is mostly a hole."""
    http, _ = server
    model = http.put("/v1/models", content=b"static model").json()["id"]
    job = http.post("/v1/jobs", json={"model": model}).json()["id"]
    service = make_service(home)
    ScriptedWorker(service).run(job)
    with service.database.transaction() as session:
        session.execute(update(ArtifactRow).values(size_bytes=_DOWNLOAD))
    service.database.close()
    artifact = http.get(f"/v1/artifacts/{http.get(f'/v1/jobs/{job}').json()['artifact_id']}").json()
    file = service.blobs.path(artifact["digest"])
    file.chmod(0o644)
    os.truncate(file, _DOWNLOAD)
    assert http.get(artifact["download"], headers={"Range": "bytes=0-9"}).status_code == 206
    return artifact["download"], file


def test_an_upload(server: tuple[httpx.Client, Peak]) -> None:
    http, peak = server
    with peak.watched():
        answer = http.put("/v1/models", content=_chunks(_UPLOAD))
    assert answer.json()["bytes"] == _UPLOAD
    assert peak.growth < _MOST_GROWTH, f"grew by {peak.growth / _MIB:.0f} MiB"


def test_a_download(server: tuple[httpx.Client, Peak], bundle: tuple[str, Path]) -> None:
    (http, peak), (address, _) = server, bundle
    received = 0
    with peak.watched(), http.stream("GET", address) as answer:
        assert answer.status_code == 200
        for chunk in answer.iter_raw():
            received += len(chunk)
    assert received == _DOWNLOAD
    assert peak.growth < _MOST_GROWTH, f"grew by {peak.growth / _MIB:.0f} MiB"


def test_downloads_that_are_broken_off(server: tuple[httpx.Client, Peak], bundle: tuple[str, Path]) -> None:
    (http, peak), (address, file) = server, bundle
    with peak.watched():
        for _ in range(20):
            with http.stream("GET", address) as answer:
                next(answer.iter_raw())
    assert peak.growth < _MOST_GROWTH, f"grew by {peak.growth / _MIB:.0f} MiB"
    # It does not stay open for readers that are gone.
    until(lambda: not any(opened.path == str(file) for opened in peak.process.open_files()), seconds=5)
