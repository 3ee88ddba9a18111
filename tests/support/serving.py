"""A whole service for a test: ``tunesmith serve`` on a home folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.servers import processes
from tests.support.tuner.engines.fixtures import home as engines_home
from tuner.host import catalogue, environments

PYTHON = os.environ.get("TUNESMITH_APP_PYTHON") or sys.executable
"""The service's own environment, where ./run made it: one that lacks what only the tests brought along fails there."""
SERVE = (PYTHON, "-m", "tunesmith", "serve", "--port", "0")
_READY = "is ready at"
_START_SECONDS = 120.0


def environment(home: Path, **more: str) -> dict[str, str]:
    """For a service's processes: the engines that the tests were given, short benchmarks, none of our own settings."""
    engines = {
        environments.variable(spec): str(environments.interpreter(spec, engines_home()))
        for spec in catalogue.ENGINES.values()
    }
    ours = {
        "TUNESMITH_HOME": str(home),
        "TUNESMITH_LOCK_FOLDER": str(home / "locks"),
        "TUNESMITH_BENCHMARK_SECONDS": "0.5",
        "PYTHONPATH": str(catalogue.ROOT),
        "PYTHONUNBUFFERED": "1",
    }
    return {**processes.clean_environment(), **engines, **ours, **more}


@contextmanager
def serving(
    environment: Mapping[str, str], *, log: Path, command: Sequence[str] = SERVE, folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """From when it is ready until the block ends; what it prints goes into ``log``."""
    process = processes.start(command, log=log, folder=folder, environment=environment)
    try:
        processes.wait_until(
            lambda: _READY in log.read_text() or process.poll() is not None,
            seconds=_START_SECONDS, what="the service is ready", log=log,
        )  # fmt: skip
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        processes.end(process, seconds=30)


def client(home: Path, *, timeout: float = 60.0) -> httpx.Client:
    """For the service of this home folder, with its own token."""
    address = json.loads((home / "server.json").read_text())
    headers = {"Authorization": f"Bearer {address['token']}"}
    return httpx.Client(base_url=address["url"], headers=headers, timeout=timeout, trust_env=False)
