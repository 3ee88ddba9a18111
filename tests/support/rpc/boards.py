"""A real RPC tracker and real RPC servers of TVM on loopback, in place of boards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.servers.processes import free_port
from tests.support.waiting import until
from tuner.engines.runtime.trackers import DeviceOffer, Ticket, Tracker, TrackerSilent

KEY = "board"


@dataclass(kw_only=True)
class Rack:
    """A tracker, and the servers that registered with it; each is a process group of its own."""

    python: Path
    logs: Path
    port: int = field(default_factory=free_port)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)
    """Of the servers."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def tracker(self) -> Tracker:
        return Tracker(self.address)

    def runner(self, key: str = KEY) -> dict[str, object]:
        return {"kind": "rpc", "tracker": self.address, "key": key, "session_timeout": 30.0}

    def start_tracker(self) -> None:
        self._start("tracker", "rpc_tracker", "--host=127.0.0.1", f"--port={self.port}", f"--port-end={self.port + 1}")
        until(self._answers)

    def start_servers(self, count: int, key: str = KEY) -> list[str]:
        """``HOST:PORT`` of each, all registered."""
        devices = []
        for _ in range(count):
            port = free_port()
            devices.append(f"127.0.0.1:{port}")
            place = (f"--port={port}", f"--port-end={port + 1}", f"--tracker={self.address}", f"--key={key}")
            self._start(devices[-1], "rpc_server", "--host=127.0.0.1", *place)
            self._keys[devices[-1]] = key
        until(lambda: self.registered(key) >= set(devices))
        return devices

    def registered(self, key: str = KEY) -> set[str]:
        return self.tracker.devices().get(key, set())

    def replace_fallen(self) -> None:
        """Start others for servers that TVM itself ended, as who looks after boards would.

        Where a connection is reset, as those of a killed client are when it had not read all, ``tvm.rpc.server`` stops
        listening for good, and its process stays.
        """
        for device in [each for each in self._keys if each in self._processes and self._has_fallen(each)]:
            self.end(device)
            self.start_servers(1, self._keys.pop(device))

    def _has_fallen(self, device: str) -> bool:
        return b"exited unsuccessfully" in self._log("rpc_server", device).read_bytes()

    def take(
        self, count: int, key: str = KEY, *, give_back: bool = True, replace_fallen: bool = False
    ) -> list[DeviceOffer]:
        """Wait for ``count`` devices at once."""
        tickets = [self.tracker.queue(key) for _ in range(count)]
        offers: list[DeviceOffer] = []

        def are_there() -> bool:
            if replace_fallen:
                self.replace_fallen()
            return _polled(tickets, offers)

        try:
            until(are_there)
        finally:
            for ticket in tickets:
                ticket.leave()
            for offer in offers if give_back else ():
                offer.give_back()
        return offers

    def end(self, name: str) -> None:
        """Kill -9 a server, or the tracker, with all it started, as a power cut would."""
        process = self._processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end_all(self) -> None:
        for name in list(self._processes):
            self.end(name)

    def _answers(self) -> bool:
        try:
            self.tracker.devices()
        except TrackerSilent:
            return False
        return True

    def _start(self, name: str, program: str, *arguments: str) -> None:
        command = [str(self.python), "-m", f"tvm.exec.{program}", "--silent", *arguments]
        environment = {**os.environ, "TVM_NUM_THREADS": "1"}
        with self._log(program, name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def _log(self, program: str, name: str) -> Path:
        return self.logs / f"{program}-{name.rpartition(':')[2]}.log"


@contextmanager
def rack(python: Path, logs: Path, servers: int) -> Iterator[Rack]:
    made = Rack(python=python, logs=logs)
    try:
        made.start_tracker()
        made.start_servers(servers)
        yield made
    finally:
        made.end_all()


def _polled(tickets: list[Ticket], offers: list[DeviceOffer]) -> bool:
    """Move what was offered to ``offers``; whether nobody waits any more."""
    for ticket in list(tickets):
        if (offer := ticket.poll()) is not None:
            offers.append(offer)
            tickets.remove(ticket)
            ticket.leave()
    return not tickets
