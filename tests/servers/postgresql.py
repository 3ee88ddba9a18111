"""A PostgreSQL server of the test's own, from the programs that are installed on this machine."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_USERS = ("postgres", "nobody")
"""PostgreSQL refuses to run as root; whichever of these exists runs it then."""


def programs() -> Path | None:
    """The folder of ``initdb`` and ``postgres``, newest first; Debian does not put it on the PATH."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else []
    numbered = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    found += sorted(numbered, key=lambda folder: int(folder.parent.name), reverse=True)
    complete = (each for each in found if (each / "initdb").exists() and (each / "postgres").exists())
    return next(complete, None)


class PostgresqlServer:
    """Listens on 127.0.0.1 at a port that stays the same over restarts. Made by ``running``, or closed by its maker."""

    def __init__(self, *, durable: bool = False, options: dict[str, str] | None = None) -> None:
        """``durable``: commits are on disk before they are answered, as they must be where the server is killed."""
        folder = programs()
        assert folder, "PostgreSQL is not installed"
        self._programs = folder
        self._options = {**({} if durable else {"fsync": "off", "synchronous_commit": "off"}), **(options or {})}
        self.folder = Path(tempfile.mkdtemp(prefix="tunesmith-pg-"))
        self._user = _other_user() if os.geteuid() == 0 else None
        self.password = secrets.token_urlsafe(16)
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        if self._user:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self._make_cluster()

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://tunesmith:{self.password}@127.0.0.1:{self.port}/postgres"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def start(self) -> None:
        """Returns once it answers."""
        options = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            **self._options,
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = [self._programs / "postgres", "-D", self.folder / "data", *settings]
        with self.log.open("ab") as log:
            self.process = self._popen(command, log)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGTERM waits for clients to leave, SIGINT cuts their connections, SIGQUIT is a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGQUIT)
                self.process.wait(_STOP_SECONDS)
            self.process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_cluster(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)  # in a folder that nobody else may enter
        arguments = ["--username=tunesmith", f"--pwfile={secret}", "--auth=scram-sha-256", "--no-sync"]
        locale = ["--encoding=UTF8", "--locale=C.UTF-8"]
        command = [self._programs / "initdb", "-D", self.folder / "data", *arguments, *locale]
        with self.log.open("ab") as log:
            status = self._popen(command, log).wait(_START_SECONDS)
        assert status == 0, self.log.read_text()

    def _popen(self, command: list[str | Path], log: object) -> subprocess.Popen[bytes]:
        identity = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []} if self._user else {}
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=log,  # type: ignore[arg-type]
            stderr=log,  # type: ignore[arg-type]
            start_new_session=True,
            **identity,  # type: ignore[arg-type]
        )

    def _answers(self) -> bool:
        command = [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0


@contextmanager
def running(*, durable: bool = False, options: dict[str, str] | None = None) -> Iterator[PostgresqlServer]:
    server = PostgresqlServer(durable=durable, options=options)
    try:
        server.start()
        yield server
    finally:
        server.close()


def _other_user() -> pwd.struct_passwd:
    for name in _USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError(f"none of the users {_USERS} exists")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
