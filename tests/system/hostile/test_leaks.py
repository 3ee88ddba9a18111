"""Credentials in logs: none, whatever goes well or wrong, at the most talkative level."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support import models
from tests.support.tuner.engines.fixtures import home as usual_home
from tuner import catalogue, environments
from tunesmith import connection

_PYTHON = os.environ.get("TUNESMITH_APP_PYTHON") or sys.executable
TOKEN = "tok-en-of-the-service-0123456789abcdef"
PASSWORD = "pass-word-of-the-database"
_START_SECONDS = 60.0


def _environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TUNESMITH_")}
    ours = {"TUNESMITH_HOME": str(home), "TUNESMITH_TOKEN": TOKEN, "TUNESMITH_LOG_LEVEL": "debug"}
    return {**kept, **ours, "TUNESMITH_DATABASE_TIMEOUT": "2", **more}


@pytest.mark.parametrize("program", ["api", "worker"])
@pytest.mark.parametrize(
    "url", [f"postgresql+psycopg://tunesmith:{PASSWORD}@127.0.0.1:1/tunesmith", f"nonsense://x:{PASSWORD}@host/x"]
)
def test_a_database_that_cannot_be_had_is_told_without_its_password(tmp_path: Path, program: str, url: str) -> None:
    broker = f"redis://:{PASSWORD}@127.0.0.1:1/0"
    environment = _environment(tmp_path, TUNESMITH_DATABASE_URL=url, TUNESMITH_BROKER_URL=broker)
    command = [_PYTHON, "-m", program]
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=45, check=False)
        said = ended.stdout + ended.stderr
        assert ended.returncode != 0
    except subprocess.TimeoutExpired as late:
        said = ((late.stdout or b"") + (late.stderr or b"")).decode()
    assert said.strip(), "it must say what is wrong"
    assert PASSWORD not in said
    assert TOKEN not in said


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    named = {environments.variable(spec): str(environments.interpreter(spec, usual_home())) for spec in _engines()}
    command = [_PYTHON, "-m", "tunesmith", "serve", "--port", "0"]
    (tmp_path / "logs").mkdir()
    with (tmp_path / "logs" / "serve.log").open("ab") as log:
        more = {"TUNESMITH_BENCHMARK_SECONDS": "0.5", "AWS_SECRET_ACCESS_KEY": PASSWORD}
        environment = _environment(tmp_path, **named, **more)
        server = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not (tmp_path / "server.json").exists() and time.monotonic() < deadline:
                time.sleep(0.2)
            yield tmp_path
        finally:
            server.terminate()
            server.wait(30)


def _engines() -> list[catalogue.EngineSpec]:
    return [catalogue.get(name) for name in ("relay", "reference")]


@pytest.mark.engine
def test_no_log_of_a_run_holds_the_token_or_a_key(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_HOME", str(served))
    for name in ("TUNESMITH_URL", "TUNESMITH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    found = connection.find(None, None)
    assert found.token == TOKEN
    with httpx.Client(base_url=found.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
        minted = client.post("/v1/tokens", json={"name": "ci"}).json()["token"]
        assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {minted}"}).status_code == 200
        assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {TOKEN[:-1]}x"}).status_code == 401
        assert client.put("/v1/models?name=bad", content=b"no model").status_code == 422
        model = client.put("/v1/models?name=net", content=models.dense_network(columns=8)).json()["id"]
        job = client.post("/v1/jobs", json={"model": model, "tuner": "autotvm", "budget": {"trials": 1}}).json()["id"]
        deadline = time.monotonic() + 200
        while client.get(f"/v1/jobs/{job}").json()["state"] in ("queued", "running") and time.monotonic() < deadline:
            time.sleep(0.5)
        assert client.get(f"/v1/jobs/{job}").json()["state"] == "succeeded"
    logs = [path for path in (served / "logs").rglob("*") if path.is_file()]
    assert any(path.stat().st_size for path in logs)
    for path in logs:
        text = path.read_text(errors="replace")
        for secret in (TOKEN, minted, PASSWORD):
            assert secret not in text, path
