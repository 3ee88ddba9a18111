"""Credentials in logs: none, whatever goes well or wrong, at the most talkative level."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import models, serving
from tests.support.servers import processes

TOKEN = "tok-en-of-the-service-0123456789abcdef"
PASSWORD = "pass-word-of-the-database"


def _settings(home: Path) -> dict[str, str]:
    ours = {"TUNESMITH_HOME": str(home), "TUNESMITH_TOKEN": TOKEN, "TUNESMITH_LOG_LEVEL": "debug"}
    return {**ours, "TUNESMITH_DATABASE_TIMEOUT": "2"}


@pytest.mark.parametrize(
    ("program", "url"),
    [
        ("api", f"postgresql+psycopg://tunesmith:{PASSWORD}@127.0.0.1:1/tunesmith"),
        ("worker", f"nonsense://x:{PASSWORD}@host/x"),
    ],
)
def test_a_database_that_cannot_be_had_is_told_without_its_password(tmp_path: Path, program: str, url: str) -> None:
    broker = f"redis://:{PASSWORD}@127.0.0.1:1/0"
    addresses = {"TUNESMITH_DATABASE_URL": url, "TUNESMITH_BROKER_URL": broker}
    environment = {**processes.clean_environment(), **_settings(tmp_path), **addresses}
    command = [serving.PYTHON, "-m", program]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=45, check=False)
    assert ended.returncode != 0
    said = ended.stdout + ended.stderr
    assert said.strip(), "it must say what is wrong"
    assert PASSWORD not in said
    assert TOKEN not in said


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "logs").mkdir()
    more = _settings(tmp_path) | {"AWS_SECRET_ACCESS_KEY": PASSWORD}
    with serving.serving(serving.environment(tmp_path, **more), log=tmp_path / "logs" / "serve.log"):
        yield tmp_path


@pytest.mark.engine
def test_no_log_of_a_run_holds_the_token_or_a_key(served: Path) -> None:
    with serving.client(served) as client:
        assert client.headers["Authorization"] == f"Bearer {TOKEN}"
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
