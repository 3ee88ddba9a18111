"""The Dockerfile, and what the containers start, as far as that can be shown without an engine for containers."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url

from serve.doctor import messages
from serve.doctor.findings import State
from tests.support.servers import processes, s3
from tests.support.servers.s3 import S3
from tests.system.deployment import composing
from worker import broker

SERVICES = composing.services()
OURS = ["api", "worker-cpu", "worker-gpu"]


def test_bases_are_of_exact_versions() -> None:
    own = set(composing.stages())
    bases = {arguments.split()[0] for name, arguments in composing.instructions() if name == "FROM"} - own
    copied = {match for _, each in composing.instructions() for match in re.findall(r"--from=(\S+)", each)} - own
    assert bases | copied
    assert [image for image in bases | copied if not re.search(r":\d+\.\d+", image)] == []


@pytest.mark.parametrize("target", [*OURS, "s3"])
def test_an_image_does_not_run_as_root(target: str) -> None:
    assert composing.effective(target, "USER")[-1] == "10001:10001"


def test_what_is_copied_exists_and_is_let_in() -> None:
    for name, arguments in composing.instructions():
        if name == "COPY" and "--from" not in arguments:
            for path in [part for part in arguments.split() if not part.startswith("--")][:-1]:
                assert (composing.ROOT / path).exists(), path
                assert path == "." or not composing.is_ignored(path), path


def test_every_package_gets_into_the_image_and_nothing_else_does() -> None:
    packages = {path.parent.name for path in composing.ROOT.glob("*/__init__.py")} - {"bench"}
    assert [name for name in sorted(packages) if composing.is_ignored(f"{name}/__init__.py")] == []
    for path in (
        "tests/support/models.py",
        ".git/config",
        "docker/secrets/token",
        "docs/reference/cli.md",
        "tuner/__pycache__/x.pyc",
    ):
        assert composing.is_ignored(path), path


def test_engines_are_installed_when_the_image_is_built() -> None:
    assert "./run cli engines install" in composing.effective("builder", "RUN")
    for target in OURS:
        variables = " ".join(composing.effective(target, "ENV"))
        for engine in ("RELAY", "RELAX", "ONNX"):
            assert f"TUNESMITH_ENGINE_{engine}_PYTHON=/opt/tunesmith/engines/{engine.lower()}/bin/python" in variables


@pytest.mark.parametrize("target", OURS)
def test_an_image_starts_an_entry_point_of_the_checkout(target: str) -> None:
    command = json.loads(composing.effective(target, "CMD")[-1])
    if target == "api":
        assert command[1:] == ["-m", "api"]
        assert importlib.util.find_spec("api.__main__")
    else:
        assert command == ["tunesmith", "worker"]


def test_secrets_are_made_once_and_fit_each_other(made_secrets: Path) -> None:
    named = {Path(value["file"]).name for value in composing.composition()["secrets"].values()}
    files = {path.name: path for path in made_secrets.iterdir()}
    assert set(files) == named
    assert stat.S_IMODE(made_secrets.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o444}
    before = {name: path.read_text() for name, path in files.items()}
    subprocess.run([composing.FOLDER / "make-secrets.sh", made_secrets], check=True)
    assert {path.name: path.read_text() for path in made_secrets.iterdir()} == before
    url = make_url(before["database_url"].strip())
    assert (url.password, url.host) == (before["postgres_password"].strip(), "postgres")
    (identity,) = json.loads(before["s3.json"])["identities"]
    keys = {"accessKey": before["blob_access_key"].strip(), "secretKey": before["blob_secret_key"].strip()}
    assert identity["credentials"] == [keys]
    assert len({text for name, text in before.items() if name != "metrics_token"}) == len(named) - 1


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_the_broker_takes_its_command_and_its_secret(kind: str, made_secrets: Path, tmp_path: Path) -> None:
    """A real server, of the same kind or of the one that it comes from, with the container's own arguments."""
    program = str(broker.binary()) if kind == "valkey" else shutil.which("redis-server")
    if program is None:
        pytest.skip("Redis is not installed (Debian: apt-get install redis-server)")
    port = processes.free_port()
    given = [
        str(made_secrets / "valkey.conf") if "/run/secrets" in part else part for part in SERVICES["valkey"]["command"]
    ]
    given = [str(tmp_path) if part == "/data" else part for part in given]
    command = [program, *given[1:], "--port", str(port), "--bind", "127.0.0.1"]
    process = processes.start(command, log=tmp_path / "log", folder=tmp_path)
    try:
        processes.wait_until(lambda: processes.accepts(port), seconds=20, what="it listens", log=tmp_path / "log")
        url = (made_secrets / "broker_url").read_text().strip().replace("valkey:6379", f"127.0.0.1:{port}")
        assert {finding.state for finding in messages.check(url)} == {State.OK}
        (refused,) = messages.check(f"redis://127.0.0.1:{port}/0")
        assert refused.state is State.FAIL
    finally:
        processes.end(process)


def test_the_bucket_is_made_once(s3_server: S3, tmp_path: Path) -> None:
    for name, text in (("key", s3.KEY_ID), ("secret", s3.SECRET)):
        (tmp_path / name).write_text(text)
    environment = {
        **processes.clean_environment(),
        "PYTHONPATH": str(composing.ROOT),
        "TUNESMITH_BLOB_URL": f"s3://made-at-start/blobs?endpoint={s3_server.endpoint()}&region=us-east-1&path_style=1",
        "TUNESMITH_BLOB_ACCESS_KEY_FILE": str(tmp_path / "key"),
        "TUNESMITH_BLOB_SECRET_KEY_FILE": str(tmp_path / "secret"),
    }
    command = [sys.executable, "docker/make_bucket.py"]
    for _ in range(2):
        made = subprocess.run(command, cwd=composing.ROOT, env=environment, capture_output=True, text=True, check=False)
        assert (made.returncode, made.stderr) == (0, "the bucket made-at-start exists\n")
    client = s3_server.client()
    assert "made-at-start" in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
    client.close()
    environment["TUNESMITH_BLOB_URL"] = "s3://b/?endpoint=http://127.0.0.1:1&region=x&path_style=1"
    away = subprocess.run(command, cwd=composing.ROOT, env=environment, capture_output=True, text=True, check=False)
    assert away.returncode == 4
    environment["TUNESMITH_BLOB_URL"] = ""
    none = subprocess.run(command, cwd=composing.ROOT, env=environment, capture_output=True, text=True, check=False)
    assert none.returncode == 3


@pytest.mark.parametrize("script", ["make-secrets.sh", "tunesmith.sh"])
def test_scripts_are_posix_shell(script: str) -> None:
    shell = shutil.which("dash") or "sh"
    assert subprocess.run([shell, "-n", composing.FOLDER / script], check=False).returncode == 0
