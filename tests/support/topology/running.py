"""The production topology on one machine: PostgreSQL, a broker, S3, the API and workers, each a process of its own.

The API and the workers are started by the commands and with the variables that the containers have. Workers of
different *hosts* share nothing but the three servers: each host has a home folder and a lock folder. Between the
service and each server stands a proxy, which passes everything on until a test says otherwise.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from storage.database import Database, migrate
from tests.support.servers import postgresql, processes, proxy, redis, s3
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import Redis
from tests.support.servers.s3 import S3
from tests.support.topology import clocks, disks, engines, witness
from tests.support.topology.engines import Engines
from tests.support.topology.parts import Part
from tuner.host.catalogue import ROOT

PYTHON = os.environ.get("TUNESMITH_APP_PYTHON") or sys.executable
"""The service's own environment, where ./run made it."""
QUICK = {
    "TUNESMITH_LEASE_SECONDS": "4",
    "TUNESMITH_CANCEL_POLL_SECONDS": "0.25",
    "TUNESMITH_HEARTBEAT_SECONDS": "1",
    "TUNESMITH_LOOK_SECONDS": "0.5",
    "TUNESMITH_BENCHMARK_SECONDS": "0.5",
    "TUNESMITH_DATABASE_TIMEOUT": "10",
}
"""Settings with which what takes half a minute in production takes some seconds."""
_READY_SECONDS = 60.0
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Host:
    name: str
    home: Path
    locks: Path
    witnesses: Path
    clock: clocks.HostClock
    disk: disks.Disk | None
    """The home folder's own file system, where there is one."""


@dataclass(kw_only=True)
class Topology:
    folder: Path
    kind: Engines
    postgresql: PostgreSQL
    redis: Redis
    s3: S3
    postgresql_proxy: Proxy
    redis_proxy: Proxy
    s3_proxy: Proxy
    settings: dict[str, str]
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    small_disks: frozenset[str] = frozenset()
    """Hosts whose home folder is a small file system of its own, where we may make one."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    hosts: dict[str, Host] = field(default_factory=dict)
    workers: dict[str, Part] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.database_name = self.postgresql.create_database("tunesmith")
        self.port = processes.free_port()
        self.clock_library = clocks.compile_library(self.folder)
        self.database = Database(self.postgresql.url(self.database_name, socket=True), timeout=10)
        """For looking at it, past the proxy."""
        self.api = self._part("api", "api", self.host("front"))
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=30,
            trust_env=False,
        )

    def host(self, name: str) -> Host:
        if name not in self.hosts:
            folder = self.folder / name
            home, locks, witnesses = folder / "home", folder / "locks", folder / "witness"
            for path in (home, locks, witnesses):
                path.mkdir(parents=True, mode=0o700)
            self.hosts[name] = Host(
                name=name,
                home=home,
                locks=locks,
                witnesses=witnesses,
                clock=clocks.make(folder, self.clock_library),
                disk=disks.mount(home) if name in self.small_disks else None,
            )
        return self.hosts[name]

    def environment(self, host: Host) -> dict[str, str]:
        """As the containers get it."""
        written = engines.write(
            host.home.parent / "engines",
            self.kind,
            mark=self.mark,
            witnesses=host.witnesses,
        )
        return {
            **processes.clean_environment(),
            **self.s3.credentials,
            **written,
            **self.settings,
            **host.clock.environment,
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
            "PYTHONUNBUFFERED": "1",
            "TUNESMITH_HOME": str(host.home),
            "TUNESMITH_LOCK_FOLDER": str(host.locks),
            "TUNESMITH_ENGINE_WRITABLE": str(host.witnesses),
            "TUNESMITH_TOKEN": self.token,
            "TUNESMITH_PORT": str(self.port),
            "TUNESMITH_DATABASE_URL": self.postgresql.url(self.database_name, port=self.postgresql_proxy.port),
            "TUNESMITH_BROKER_URL": self.redis.url(port=self.redis_proxy.port),
            "TUNESMITH_BLOB_URL": f"s3://{s3.BUCKET}/blobs?endpoint={self.s3.endpoint(port=self.s3_proxy.port)}"
            f"&region={s3.REGION}&path_style=1",
        }

    def add_worker(self, name: str, host: str) -> Part:
        """Not started yet."""
        part = self._part(name, "worker", self.host(host))
        part.environment |= {"TUNESMITH_TAKES": "cpu"}
        self.workers[name] = part
        return part

    def start(self) -> None:
        migrate(self.database)
        for part in self.parts():
            part.start()
        self.wait(self.is_ready, seconds=_READY_SECONDS, what="the API is ready and the workers have said hello")

    def is_ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            if self.client.get("/readyz").status_code != 200:
                return False
            workers = self.client.get("/v1/workers").json()["workers"]
            return len([worker for worker in workers if worker["alive"]]) >= sum(
                part.runs for part in self.workers.values()
            )
        return False

    def heal(self) -> None:
        """Undo whatever was done to servers, networks, disks and clocks, and have every part run again."""
        for each in (self.postgresql_proxy, self.redis_proxy, self.s3_proxy):
            each.refusing, each.silent, each.delay, each.answer_writes = False, False, 0.0, None
        for server in (self.postgresql, self.redis):
            if server.process is None:
                server.start()
        self.redis.thaw()
        for host in self.hosts.values():
            host.clock.jump(0)
            if host.disk:
                host.disk.free()
        for part in self.parts():
            part.wanted = True
        self.tend()

    def parts(self) -> list[Part]:
        return [self.api, *self.workers.values()]

    def tend(self) -> None:
        """What an orchestrator does: start again what has ended and is wanted."""
        for part in self.parts():
            part.tend()

    def wait(self, condition: Callable[[], bool], *, seconds: float, what: str) -> float:
        """Returns after how many seconds it became so, tending the parts meanwhile. Raises AssertionError."""
        started = time.monotonic()
        while not condition():
            if time.monotonic() - started > seconds:
                raise AssertionError(f"not within {seconds:g} s: {what}; the logs are in {self.folder}")
            self.tend()
            time.sleep(_LOOK_SECONDS)
        return time.monotonic() - started

    def engines_alive(self) -> list[int]:
        return engines.alive(self.mark)

    def two_at_once(self) -> int:
        return sum(witness.two_at_once(host.witnesses) for host in self.hosts.values())

    def measured(self) -> int:
        return sum(witness.measured(host.witnesses) for host in self.hosts.values())

    def stop(self) -> None:
        for part in self.parts():
            part.wanted = False
            if part.process is not None and part.runs:
                part.process.terminate()
        for part in self.parts():
            part.stop()
        for host in self.hosts.values():
            if host.disk:
                host.disk.unmount()
        self.client.close()
        self.database.close()

    def _part(self, name: str, module: str, host: Host) -> Part:
        return Part(
            name=name,
            command=[PYTHON, "-m", module],
            environment=self.environment(host),
            log=self.folder / f"{name}.log",
        )


@contextlib.contextmanager
def running(
    *,
    kind: Engines,
    workers: Mapping[str, str],
    settings: Mapping[str, str] | None = None,
    small_disks: frozenset[str] = frozenset(),
    keep: Path | None = None,
) -> Iterator[Topology]:
    """``workers`` maps names to hosts. Raises Missing where a server is not installed.

    What it wrote is removed at the end, unless it ends in an error; ``keep`` names a folder that stays.
    """
    folder = keep or Path(tempfile.mkdtemp(prefix="tunesmith-topology-"))
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(postgresql.running(fsync=True))
        broker = stack.enter_context(redis.running())
        blobs = stack.enter_context(s3.running())
        topology = Topology(
            folder=folder,
            kind=kind,
            postgresql=database,
            redis=broker,
            s3=blobs,
            postgresql_proxy=stack.enter_context(proxy.before(database.port)),
            redis_proxy=stack.enter_context(proxy.before(broker.port)),
            s3_proxy=stack.enter_context(proxy.before(blobs.port)),
            settings={**QUICK, **(settings or {})},
            small_disks=small_disks,
        )
        stack.callback(topology.stop)
        for name, host in workers.items():
            topology.add_worker(name, host)
        topology.start()
        yield topology
    if keep is None:
        shutil.rmtree(folder, ignore_errors=True)
