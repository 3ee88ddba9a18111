"""Worker processes as on hosts of their own: each with its own home and lock folder, over one database and broker."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import redis

from storage import workers
from storage.database import Database
from tuner.catalogue import ROOT
from worker import broker

_READY_SECONDS = 120.0
_STOP_SECONDS = 20.0


def engine(folder: Path, *, seconds: float) -> tuple[Path, Path]:
    """A program to start in place of an engine's Python, and the file in which it notes every trial."""
    log, program = folder / "measured", folder / "engine"
    log.touch()
    command = [sys.executable, "-m", "bench.scale_engine", str(seconds), str(log)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    return program, log


def environment(program: Path, *, database_url: str, broker_url: str, blobs: Path, **others: str) -> dict[str, str]:
    """What workers are started with, besides what is each one's own; nothing of the caller's service."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TUNESMITH_")},
        **{f"TUNESMITH_ENGINE_{name}_PYTHON": str(program) for name in ("RELAY", "REFERENCE")},
        "TUNESMITH_DATABASE_URL": database_url,
        "TUNESMITH_BROKER_URL": broker_url,
        "TUNESMITH_BLOB_URL": f"file://{blobs}",
        "TUNESMITH_REAPER_SECONDS": "0.5",
        "TUNESMITH_BENCHMARK_SECONDS": "0.1",
        **others,
    }


@contextlib.contextmanager
def messages(folder: Path) -> Iterator[str]:
    """A broker of our own; its URL."""
    with _process(broker.command(folder), folder / "broker.log", os.environ):
        url = broker.url(folder)
        client = redis.Redis(unix_socket_path=str(broker.socket_path(folder)))
        _until(lambda: _answers(client), "the broker does not answer")
        client.close()
        yield url


@contextlib.contextmanager
def running(folder: Path, size: int, environment: Mapping[str, str], database: Database) -> Iterator[list[str]]:
    """So many workers, once all of them are known to the service; their ids, and their end with the block."""
    with contextlib.ExitStack() as stack:
        for number in range(size):
            home = folder / f"host{number}"
            home.mkdir(parents=True, exist_ok=True)
            own = {
                "TUNESMITH_HOME": str(home),
                "TUNESMITH_LOCK_FOLDER": str(home / "locks"),
                "TUNESMITH_TAKES": "cpu",
                "PYTHONPATH": str(ROOT),
            }
            command = [sys.executable, "-m", "worker"]
            stack.enter_context(_process(command, folder / f"host{number}.log", {**environment, **own}))
        _until(lambda: len(_known(database)) == size, f"{size} workers did not come up")
        yield _known(database)
    with database.transaction() as session:
        workers.forget(session, _known(database))


def _known(database: Database) -> list[str]:
    with database.reading() as session:
        return [each.id for each in workers.known(session)]


@contextlib.contextmanager
def _process(command: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    with log.open("ab") as stream:
        process = subprocess.Popen(command, cwd=ROOT, env=dict(environment), stdout=stream, stderr=stream)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(client: redis.Redis) -> bool:
    with contextlib.suppress(redis.RedisError):
        return bool(client.ping())
    return False


def _until(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(complaint)
        time.sleep(0.1)
