"""A real PostgreSQL server: its own cluster in a temporary folder, on a unix socket and a loopback port."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg

from tests.support.servers import processes

HOW_TO_GET_IT = "apt-get install postgresql"
USER = "tunesmith"
PASSWORD = "for-tests-only"
_DEBIAN = Path("/usr/lib/postgresql")
_START_SECONDS = 30.0


def binaries() -> Path | None:
    """The folder that holds ``initdb`` and ``postgres``: the one on the PATH, or Debian's newest."""
    found = shutil.which("initdb")
    if found and (Path(found).resolve().parent / "postgres").exists():
        return Path(found).resolve().parent
    versions = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parent.parent.name))
    return versions[-1].parent if versions else None


@dataclass(kw_only=True)
class PostgreSQL:
    folder: Path
    programs: Path
    port: int
    user: pwd.struct_passwd | None
    """Whom the server runs as, where it may not run as us."""
    fsync: bool
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def log(self) -> Path:
        return self.folder / "postgresql.log"

    def url(self, database: str = "postgres", *, port: int | None = None, socket: bool = False) -> str:
        """As ``TUNESMITH_DATABASE_URL`` has it; ``port`` is another one than the server's, such as a proxy's."""
        where = (
            f"/{database}?host={self.folder}&port={self.port}"
            if socket
            else f"127.0.0.1:{port or self.port}/{database}"
        )
        return f"postgresql+psycopg://{USER}:{PASSWORD}@{where}"

    def create_database(self, name: str | None = None) -> str:
        """Returns its name, a new one where none is given."""
        name = name or f"t{uuid.uuid4().hex[:16]}"
        self.execute(f'CREATE DATABASE "{name}"')
        return name

    def execute(self, statement: str) -> None:
        with self.connect() as connection:
            connection.execute(statement)

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """By the socket, so that a proxy in front of the port does not matter; commits every statement."""
        return psycopg.connect(
            host=str(self.folder), port=self.port, user=USER, password=PASSWORD, dbname=database, autocommit=True
        )

    def initialise(self) -> None:
        # initdb reads the password from a file that its user can read.
        password = self.folder / "password"
        password.write_text(PASSWORD)
        if self.user:
            os.chown(password, self.user.pw_uid, self.user.pw_gid)
        sort = ["--no-locale", "--encoding=UTF8", *([] if self.fsync else ["--no-sync"])]
        secret = ["--username", USER, "--auth=scram-sha-256", f"--pwfile={password}"]
        made = processes.start(
            [str(self.programs / "initdb"), "-D", str(self.data), *sort, *secret],
            log=self.log,
            folder=self.folder,
            user=self.user,
        )
        if made.wait(120) != 0:
            raise AssertionError(f"initdb failed: {self.log.read_text(errors='replace')[-2000:]}")
        password.unlink()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        durable = [] if self.fsync else ["fsync=off", "synchronous_commit=off", "full_page_writes=off"]
        options = [
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
            "timezone=UTC",
            "max_connections=200",
            *durable,
        ]
        self.process = processes.start(
            [
                str(self.programs / "postgres"),
                "-D",
                str(self.data),
                *(part for option in options for part in ("-c", option)),
            ],
            log=self.log,
            folder=self.folder,
            user=self.user,
        )
        processes.wait_until(self.answers, seconds=_START_SECONDS, what="PostgreSQL answers", log=self.log)

    def answers(self) -> bool:
        with contextlib.suppress(psycopg.Error), self.connect():
            return True
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"PostgreSQL ended: {self.log.read_text(errors='replace')[-2000:]}")
        return False

    def stop(self) -> None:
        """In the ``fast`` mode of pg_ctl: connections are cut, what was committed stays."""
        if self.process is not None:
            processes.end(self.process, signal.SIGINT)
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """``kill -9`` of all of it, as a host that loses power would; ``start`` recovers from its log."""
        if self.process is not None:
            # Each backend leads a session of its own, and a successor starts only when the last one is gone.
            backends = psutil.Process(self.process.pid).children(recursive=True)
            processes.kill(self.process)
            for backend in backends:
                with contextlib.suppress(psutil.NoSuchProcess):
                    backend.kill()
            psutil.wait_procs(backends, timeout=10)
            self.process = None


@contextlib.contextmanager
def running(*, fsync: bool = False) -> Iterator[PostgreSQL]:
    """``fsync``: whether a commit is on disk before it is answered, as in production. Raises Missing."""
    programs = binaries()
    if programs is None:
        raise processes.Missing(f"PostgreSQL is not installed: {HOW_TO_GET_IT}")
    user = _other_user() if os.getuid() == 0 else None
    # A socket's path has 107 bytes at most, and the folder's parents must be open to the server's user.
    folder = Path(tempfile.mkdtemp(prefix="tunesmith-pg-"))
    server = PostgreSQL(folder=folder, programs=programs, port=processes.free_port(), user=user, fsync=fsync)
    try:
        if user:
            os.chown(folder, user.pw_uid, user.pw_gid)
        server.initialise()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _other_user() -> pwd.struct_passwd:
    """PostgreSQL refuses to run as root."""
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise processes.Missing("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
