"""A real Redis or Valkey server, the one that ``serve`` would start, on a loopback port; every write is on disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.servers import processes
from worker import broker

_START_SECONDS = 20.0


@dataclass(kw_only=True)
class Redis:
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    def url(self, *, port: int | None = None) -> str:
        """As ``TUNESMITH_BROKER_URL`` has it; ``port`` is another one than the server's, such as a proxy's."""
        return f"redis://127.0.0.1:{port or self.port}/0"

    def start(self) -> None:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        command = [str(broker.binary()), *(part for name, value in options.items() for part in (f"--{name}", value))]
        self.process = processes.start(command, log=self.log, folder=self.folder)
        processes.wait_until(self.answers, seconds=_START_SECONDS, what="the broker answers", log=self.log)

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as client:
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        return False

    def kill(self) -> None:
        if self.process is not None:
            processes.kill(self.process)
            self.process = None

    def stop(self) -> None:
        if self.process is not None:
            processes.end(self.process)
            self.process = None

    def freeze(self) -> None:
        """Connections stay, and nothing is answered any more."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is None:
            raise AssertionError("the broker does not run")
        os.kill(self.process.pid, number)


@contextlib.contextmanager
def running() -> Iterator[Redis]:
    folder = Path(tempfile.mkdtemp(prefix="tunesmith-redis-"))
    server = Redis(folder=folder, port=processes.free_port())
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
