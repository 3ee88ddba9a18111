"""``tunesmith doctor`` and ``migrate`` as processes, on the servers of production and on none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import processes, s3
from tests.support.servers.redis import Redis
from tests.support.servers.s3 import S3

ROOT = Path(__file__).parents[3]
SERVERS = ("settings", "home", "database", "broker", "blobs", "workers")


def tunesmith(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**processes.clean_environment(), "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", **settings}
    command = [sys.executable, "-m", "tunesmith", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def production(postgresql_url: str, redis_server: Redis, s3_server: S3, tmp_path: Path) -> dict[str, str]:
    """Every setting by URL, and the secret ones in files, as the containers get them."""
    secret = {
        "DATABASE_URL": postgresql_url,
        "BROKER_URL": redis_server.url(),
        "BLOB_ACCESS_KEY": s3.KEY_ID,
        "BLOB_SECRET_KEY": s3.SECRET,
    }
    for name, text in secret.items():
        (tmp_path / name).write_text(text + "\n")
    return {
        "TUNESMITH_HOME": str(tmp_path / "home"),
        "TUNESMITH_BLOB_URL": f"s3://{s3.BUCKET}/doctor?endpoint={s3_server.endpoint()}&region={s3.REGION}&path_style=1",
        **{f"TUNESMITH_{name}_FILE": str(tmp_path / name) for name in secret},
    }


def test_what_is_all_there_is_told_to_be(production: dict[str, str]) -> None:
    migrated = tunesmith("migrate", **production)
    assert migrated.returncode == 0, migrated.stderr
    assert migrated.stdout.startswith("the database is at revision ")
    answer = tunesmith("doctor", *SERVERS, "--json", **production)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    found: list[dict[str, Any]] = json.loads(answer.stdout)
    assert [(each["check"], each["code"]) for each in found if each["state"] != "ok"] == [("workers", "no_worker")]
    assert {each["check"] for each in found} == {*SERVERS, "clock"}
    said = json.dumps(found)
    assert "postgresql 1" in said
    assert "for-tests-only" not in said


def test_each_server_that_is_away_is_told_of(production: dict[str, str], tmp_path: Path) -> None:
    for name in ("DATABASE_URL", "BROKER_URL"):
        path = tmp_path / name
        path.write_text(path.read_text().rpartition(":")[0] + ":1/0")
    production["TUNESMITH_BLOB_URL"] = "s3://nowhere/at-all?endpoint=http://127.0.0.1:1&region=x&path_style=1"
    answer = tunesmith("doctor", *SERVERS, "--json", **production)
    assert answer.returncode == 3
    found = json.loads(answer.stdout)
    failed = {each["check"]: each for each in found if each["state"] == "fail"}
    assert set(failed) == {"database", "broker", "blobs", "workers"}
    assert all(each["message"] and each["hint"] for each in failed.values())
    assert "error[doctor_failed]: 4 of " in answer.stderr
    assert tunesmith("migrate", **production).returncode == 4


def test_a_worker_is_asked_for_alone(production: dict[str, str]) -> None:
    tunesmith("migrate", **production)
    answer = tunesmith("doctor", "--worker", **production)
    assert answer.returncode == 3
    assert answer.stdout.startswith("fail  workers    [worker_silent] no worker on ")
    assert len(answer.stdout.splitlines()) == 2


def test_settings_that_cannot_be_read_are_the_first_thing_told(tmp_path: Path) -> None:
    answer = tunesmith("doctor", TUNESMITH_HOME=str(tmp_path), TUNESMITH_BROKER_URL_FILE=str(tmp_path / "nowhere"))
    assert answer.returncode == 3
    assert "fail  settings   [configuration_error] cannot read " in answer.stdout


def test_a_check_that_is_none_is_refused(tmp_path: Path) -> None:
    answer = tunesmith("doctor", "databse", TUNESMITH_HOME=str(tmp_path))
    assert answer.returncode == 2
    assert "unknown check 'databse'" in answer.stderr
