"""The parts as the containers start them: real PostgreSQL, Redis and S3, secrets by file, the same environment."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.servers import processes, s3
from tests.support.servers.redis import Redis
from tests.support.servers.s3 import S3
from tests.system.deployment import composing
from tuner.host import catalogue, environments
from tunesmith import connection

pytestmark = pytest.mark.engine
SERVICES = composing.services()
_START_SECONDS = 120.0

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def secrets(made_secrets: Path, postgresql_url: str, redis_server: Redis, engines_home: Path) -> Path:
    """As they are made, with the addresses of this machine's servers."""
    here = {
        "database_url": postgresql_url,
        "broker_url": redis_server.url(),
        "blob_access_key": s3.KEY_ID,
        "blob_secret_key": s3.SECRET,
    }
    for name, text in here.items():
        (made_secrets / name).chmod(0o600)
        (made_secrets / name).write_text(text + "\n")
    return made_secrets


@pytest.fixture(scope="module")
def engines_home() -> Path:
    home = connection.home()
    for spec in catalogue.ENGINES.values():
        environments.install(spec, home)
    return home


@pytest.fixture
def environment_of(secrets: Path, s3_server: S3, engines_home: Path, tmp_path: Path) -> Callable[[str], dict[str, str]]:
    def environment(name: str) -> dict[str, str]:
        given = {
            key: value.replace("/run/secrets", str(secrets)).replace("http://s3:8333", s3_server.endpoint())
            for key, value in SERVICES[name]["environment"].items()
            if "METRICS" not in key
        }
        if "TUNESMITH_BLOB_URL" in given:
            given["TUNESMITH_BLOB_URL"] = given["TUNESMITH_BLOB_URL"].replace("s3://tunesmith/", "s3://by-hand/")
        pythons = {
            environments.variable(spec): str(environments.folder(spec, engines_home) / "bin" / "python")
            for spec in catalogue.ENGINES.values()
        }
        known = processes.clean_environment()
        paths = {"TUNESMITH_HOME": str(tmp_path / name), "TUNESMITH_LOCK_FOLDER": str(tmp_path / "locks")}
        return {**known, **given, **pythons, **paths, "PYTHONPATH": str(composing.ROOT), "PYTHONSAFEPATH": "1"}

    return environment


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def started(name: str, *arguments: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", *arguments]
            process = processes.start(command, log=tmp_path / f"{name}.log", folder=tmp_path, environment=environment)
            stack.callback(processes.kill, process)
            return process

        yield started


def tunesmith(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tunesmith", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def stop(process: subprocess.Popen[bytes], service: str) -> None:
    """End it with SIGTERM. Raises TimeoutExpired after the time that its container is given."""
    process.send_signal(signal.SIGTERM)
    process.wait(composing.seconds(SERVICES[service]["stop_grace_period"]))


@pytest.mark.timeout(600)
def test_the_parts_start_answer_and_stop_as_in_their_containers(
    environment_of: Callable[[str], dict[str, str]], start: Start, secrets: Path, tmp_path: Path
) -> None:
    bucket = [sys.executable, str(composing.FOLDER / "make_bucket.py")]
    assert subprocess.run(bucket, env=environment_of("bucket"), capture_output=True, check=False).returncode == 0
    assert tunesmith("migrate", environment=environment_of("migrate")).returncode == 0

    port = processes.free_port()
    api = start("api", "api", environment={**environment_of("api"), "TUNESMITH_PORT": str(port)})
    silent = tunesmith("doctor", "--worker", environment=environment_of("worker-cpu"))
    assert (silent.returncode, "worker_silent" in silent.stdout) == (3, True), silent.stdout + silent.stderr
    worker = start("worker", "tunesmith", "worker", environment=environment_of("worker-cpu"))

    token = (secrets / "token").read_text().strip()
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"})
    with client:
        processes.wait_until(lambda: is_ready(client), seconds=_START_SECONDS, what="ready", log=tmp_path / "api.log")
        processes.wait_until(
            lambda: client.get("/v1/workers").json()["workers"] != [],
            seconds=_START_SECONDS,
            what="a worker",
            log=tmp_path / "worker.log",
        )
        assert client.get("/v1/jobs", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert tunesmith("doctor", "--worker", environment=environment_of("worker-cpu")).returncode == 0
    found = tunesmith("doctor", environment=environment_of("worker-cpu"))
    assert found.returncode == 0, found.stdout
    # What this host's kernel and disk are like is no matter of the deployment.
    checks = [line for line in found.stdout.splitlines() if not line.startswith(("ok ", " "))]
    assert [line for line in checks if line.split()[1] not in ("sandbox", "home")] == []

    stop(worker, "worker-cpu")
    stop(api, "api")
    # uvicorn ends by the signal that it was sent, once its requests have ended.
    assert (worker.returncode, api.returncode) == (0, -signal.SIGTERM)


def is_ready(client: httpx.Client) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return client.get("/readyz").status_code == 200
    return False
