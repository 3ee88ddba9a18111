"""One part of the service as a process: the API or a worker, started by the command that a container runs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.servers import processes
from tuner.host.catalogue import ROOT

_RESTART_SECONDS = 0.5


@dataclass(kw_only=True)
class Part:
    name: str
    command: Sequence[str]
    environment: dict[str, str]
    log: Path
    folder: Path = ROOT
    wanted: bool = True
    """Whether it is started again when it ends, as an orchestrator does."""
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    ended: list[int] = field(default_factory=list, init=False)
    """Exit statuses so far; negative ones are signals."""
    _due: float = field(default=0.0, init=False)

    @property
    def pid(self) -> int:
        if self.process is None:
            raise AssertionError(f"{self.name} does not run")
        return self.process.pid

    @property
    def home(self) -> Path:
        return Path(self.environment["TUNESMITH_HOME"])

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Only from the main thread: see ``processes.start``."""
        self.wanted = True
        self.process = processes.start(self.command, log=self.log, folder=self.folder, environment=self.environment)

    def tend(self) -> None:
        """Start it again if it has ended and is wanted."""
        if self.process is not None and self.process.poll() is not None:
            self.ended.append(self.process.returncode)
            self.process = None
            self._due = time.monotonic() + _RESTART_SECONDS
        if self.process is None and self.wanted and time.monotonic() >= self._due:
            self.start()

    def kill(self, *, restart: bool = True) -> None:
        """``kill -9`` of this process alone; its engines are left to themselves."""
        self.wanted = restart
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.tend()

    def stop(self, *, seconds: float = 20.0) -> int | None:
        """SIGTERM, as an orchestrator ends it; returns the exit status."""
        self.wanted = False
        if self.process is None:
            return None
        process, self.process = self.process, None
        processes.end(process, seconds=seconds)
        self.ended.append(process.returncode)
        return process.returncode
