"""A running service for demos and benchmarks."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
CLI = [sys.executable, "-m", "tunesmith"]


@contextlib.contextmanager
def running(home: Path, *, keep: bool = False, say: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Provide a service for this home folder: the one already running, or a new one that is stopped at the end."""
    if _serving(home):
        say("service  already running; using it")
        yield
        return
    log = home / "logs" / "serve.log"
    log.parent.mkdir(exist_ok=True)
    say(f"service  starting (log: {log})")
    with log.open("ab") as stream:
        server = subprocess.Popen(
            [*CLI, "serve", "--port", "0"], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, process_group=0
        )
    try:
        _wait_until_ready(home, server, log)
        yield
        if keep:
            say("service  left running: ./run cli jobs; stop it with: kill " + str(server.pid))
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            _stop(server)


def _wait_until_ready(home: Path, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _serving(home):
        if server.poll() is not None or time.monotonic() > deadline:
            sys.stderr.write("".join(log.read_text(errors="replace").splitlines(keepends=True)[-20:]))
            raise SystemExit(f"the service did not start; see {log}")
        time.sleep(0.2)


def _serving(home: Path) -> bool:
    """Return whether a service for this home folder has a live worker, asked through the command line."""
    if not (home / "server.json").exists():
        return False
    answer = subprocess.run([*CLI, "workers", "--json"], check=False, capture_output=True)
    return answer.returncode == 0 and any(worker["alive"] for worker in json.loads(answer.stdout))


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
