"""``tunesmith serve``: the whole service on one machine, from one home folder, until a signal.

Starts the broker, migrates the database, starts the API and a worker, restarts processes that exit, and ends all of
them at the end. The API listens on a socket that the supervisor holds, so clients wait during its restart instead of
failing.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TextIO

from domain import errors
from process import homes, settings
from process.refusing import CONFIGURATION_STATUS, refuse
from serve.readiness import WORKER_SECONDS, Readiness
from storage import integrity
from storage.blobs import stores
from storage.database import Database, migrate
from storage.settings import StorageSettings
from tuner.host import hardware
from tuner.host.catalogue import ENGINES, ROOT
from tuner.host.session import sweep
from tuner.host.settings import TunerSettings
from worker import broker
from worker.settings import WorkerSettings

_PR_SET_PDEATHSIG = 1
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 30.0
_HEALTHY_SECONDS = 30.0
_TAIL_BYTES = 64 * 1024
_ERROR_LINE = re.compile(r"error\[(\w+)\]: (.*)")
"""Format of ``process.refusing``."""
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_BROKER_SECONDS = 30.0
_STOP_SECONDS = 6.5
_BROKER_STOP_SECONDS = 2.0
_LOOK_SECONDS = 0.1
_LOOK_THROUGH_SECONDS = 2.0
"""Time limit of the check at startup; a large database is only checked partially."""
_REFUSALS = 5
"""Consecutive refusals of one process after which another attempt is pointless."""
_SECONDS = 5.0


@dataclass(kw_only=True)
class SupervisedProcess:
    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    folder: Path
    pass_fds: Sequence[int] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _pause: float = field(default=_FIRST_PAUSE, init=False)
    _started: float = field(default=0.0, init=False)
    _next_start: float = field(default=0.0, init=False)
    _log_start: int = field(default=0, init=False)
    refusals: int = field(default=0, init=False)
    """Consecutive exits with a configuration error soon after the start."""

    def start(self) -> None:
        """Start the child; only from the main thread, as the child ends with the thread that started it."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()

        def end_with_parent() -> None:
            if _LIBC is not None:
                _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
                if os.getppid() != parent:
                    os.kill(os.getpid(), signal.SIGTERM)

        with self.log.open("ab") as log:
            self._log_start = log.seek(0, os.SEEK_END)
            # In a session of its own: Ctrl-C in the terminal reaches only the supervisor, which ends children in order.
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=tuple(self.pass_fds),
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        self._started = time.monotonic()

    def watch(self) -> str | None:
        """Restart an exited child after a pause that grows with every exit; returns a message."""
        if self.process is None:
            return self._start_again() if time.monotonic() >= self._next_start else None
        status = self.process.poll()
        if status is None:
            return None
        if time.monotonic() - self._started > _HEALTHY_SECONDS:
            self._pause, self.refusals = _FIRST_PAUSE, 0
        self.refusals = self.refusals + 1 if status == CONFIGURATION_STATUS else 0
        self._kill_group(self.process.pid)
        self.process = None
        return f"the {self.name} ended ({_exit_text(status)}); {self._put_off()} (log: {self.log})"

    def refusal(self) -> errors.ConfigurationError:
        """Return the child's own message on why it did not start."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            matches = [found for line in log if (found := _ERROR_LINE.fullmatch(line.decode(errors="replace").strip()))]
            if matches:
                code, message = matches[-1].groups()
                if code == errors.DatabaseDamaged.code:
                    return errors.DatabaseDamaged(message)
                return errors.ConfigurationError(
                    f"the {self.name} failed to start: {message}", hint=f"See its log: {self.log}"
                )
        return errors.ConfigurationError(f"the {self.name} failed to start", hint=f"See its log: {self.log}")

    def _start_again(self) -> str | None:
        try:
            self.start()
        except OSError as error:
            # The host lacks processes, memory, descriptors or disk space; this is no reason to end the other children.
            return f"cannot start the {self.name} ({error}); {self._put_off()}"
        return None

    def _put_off(self) -> str:
        pause = self._pause
        self._next_start = time.monotonic() + pause
        self._pause = min(2 * pause, _LONGEST_PAUSE)
        return f"restarting it in {pause:.1f} s"

    def ask_to_end(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)

    def end(self, *, by: float) -> None:
        """Wait until ``by`` (monotonic seconds), then kill the child and its process group."""
        if self.process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, by - time.monotonic()))
        self._kill_group(self.process.pid)
        self.process.wait()
        self.process = None

    @staticmethod
    def _kill_group(group: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _exit_text(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    return signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"


def main(host: str, port: int, home: Path, *, api_settings: Callable[[], object] | None = None) -> int:
    """Run the service and return the exit status. ``port`` 0 selects a free one; ``<home>/server.json`` has the
    address.

    ``api_settings`` reads the API's settings, whose class this package may not import.
    """
    home = home.expanduser().absolute()
    homes.keep_new_files_private()
    try:
        storage = _read_settings(home, api_settings)
        open_to_others = homes.prepare(home)
        if open_to_others:
            _say(f"warning: {open_to_others}\nhint: {homes.HINT}")
        stores.open_store(storage)
        with _only_one(home), _listen(host, port) as listener:
            return _Service(home, listener).run()
    except errors.TunesmithError as error:
        return refuse(error)


def _read_settings(home: Path, api_settings: Callable[[], object] | None) -> StorageSettings:
    """Read all settings of the children, which would otherwise fail again and again."""
    WorkerSettings(home=home)
    TunerSettings()
    if api_settings:
        api_settings()
    return StorageSettings(home=home)


class _Service:
    def __init__(self, home: Path, listener: socket.socket) -> None:
        self._home = home
        self._listener = listener
        self._address = home / "server.json"
        self.url = _url(listener)
        self._stop = threading.Event()
        self._token = settings.given("TUNESMITH_TOKEN") or _token(home)
        external = settings.given("TUNESMITH_BROKER_URL")
        resolved = {"TUNESMITH_TOKEN_FILE", "TUNESMITH_BROKER_URL_FILE"}
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in resolved},
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "TUNESMITH_HOME": str(home),
            "TUNESMITH_TOKEN": self._token,
            "TUNESMITH_BROKER_URL": external or broker.url(home),
        }
        self._broker = None if external else self._child("broker", broker.command(home))
        python = sys.executable
        descriptor = listener.fileno()
        self._workers = self._make_workers([python, "-m", "worker"])
        self._children = [
            self._child("API", [python, "-m", "api", "--fd", str(descriptor)], descriptor),
            *self._workers,
        ]

    def run(self) -> int:
        with _signals(self._stop):
            try:
                self._start()
                _say(f"Tunesmith is ready at {self.url}  (logs: {self._home / 'logs'})")
                for line in lines(self.url, self._token):
                    _say(line)
                self._watch_until(self._stop.is_set)
            except _Interrupted:
                pass
            finally:
                self._end()
        return 0

    def _make_workers(self, command: list[str]) -> list[SupervisedProcess]:
        """Create one worker, or two on a host with a GPU, as the GPU's worker runs nothing else."""
        if settings.given("TUNESMITH_TAKES") or not hardware.accelerators():
            return [self._child("worker", command)]
        return [
            self._child("worker", command, TUNESMITH_TAKES="cpu"),
            self._child("GPU-worker", command, TUNESMITH_TAKES="cuda"),
        ]

    def _child(self, name: str, command: list[str], *descriptors: int, **environment: str) -> SupervisedProcess:
        return SupervisedProcess(
            name=name,
            command=command,
            environment={**self._environment, **environment},
            log=self._home / "logs" / f"{name.lower()}.log",
            folder=ROOT,
            pass_fds=descriptors,
        )

    def _start(self) -> None:
        settings = StorageSettings(home=self._home)
        if self._broker is not None:
            self._first_start(self._broker)
            self._await_broker(self._broker)
        database = Database(settings.database_url, timeout=settings.database_timeout)
        migrate(database)
        integrity.quick_check(database.url, seconds=_LOOK_THROUGH_SECONDS)
        for child in self._children:
            self._first_start(child)
        # Written before the API is ready: the socket already listens, so early clients wait.
        _write_private(
            self._address, json.dumps({"url": self.url, "token": self._token, "pid": os.getpid()}, indent=2) + "\n"
        )
        self._await_readiness(database)

    @staticmethod
    def _first_start(child: SupervisedProcess) -> None:
        try:
            child.start()
        except OSError as error:
            raise errors.ConfigurationError(
                f"cannot start the {child.name}: {error}",
                hint="The host lacks memory, processes, file descriptors or disk space, or the log is not writable.",
            ) from error

    def _await_readiness(self, database: Database) -> None:
        def pids() -> list[int | None]:
            return [process.pid if (process := worker.process) else None for worker in self._workers]

        hello = TunerSettings().engine_hello_seconds
        seconds = WORKER_SECONDS + len(ENGINES) * hello
        readiness = Readiness(self.url, database, pids, logs=self._home / "logs", worker_seconds=seconds)
        try:
            self._watch_until(lambda: readiness.is_over() or self._stop.is_set())
        finally:
            readiness.close()
        if self._stop.is_set():
            raise _Interrupted
        readiness.check()

    def _await_broker(self, child: SupervisedProcess) -> None:
        path = broker.socket_path(self._home)
        deadline = time.monotonic() + _BROKER_SECONDS
        while not _answers(path):
            if self._stop.wait(_LOOK_SECONDS):
                raise _Interrupted
            ended = child.process is None or child.process.poll() is not None
            if ended or time.monotonic() > deadline:
                raise errors.ConfigurationError("the message broker did not start", hint=f"See its log: {child.log}")

    def _watch_until(self, done: Callable[[], bool]) -> None:
        children = [*([self._broker] if self._broker else []), *self._children]
        while not done():
            for child in children:
                news = child.watch()
                if news:
                    _say(news)
                if child.refusals >= _REFUSALS:
                    raise child.refusal()
            self._stop.wait(_LOOK_SECONDS)

    def _end(self) -> None:
        self._address.unlink(missing_ok=True)
        deadline = time.monotonic() + _STOP_SECONDS
        for child in self._children:
            child.ask_to_end()
        for child in self._children:
            child.end(by=deadline)
        # Last, so that the others can still unregister.
        if self._broker is not None:
            self._broker.ask_to_end()
            self._broker.end(by=time.monotonic() + _BROKER_STOP_SECONDS)
            broker.socket_path(self._home).unlink(missing_ok=True)
        sweep(self._home)


class _Interrupted(Exception):
    """A signal arrived before the service was ready."""


@contextlib.contextmanager
def _only_one(home: Path) -> Iterator[None]:
    with (home / "serve.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.ConfigurationError(
                f"a service already runs in {home}{_known(home)}",
                hint="Use it, stop it, or set TUNESMITH_HOME to another folder.",
            ) from None
        yield


def _known(home: Path) -> str:
    try:
        written = json.loads((home / "server.json").read_text())
        return f": {written['url']}, pid {written['pid']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


@contextlib.contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    """Open the listening socket. Raises ConfigurationError if the address is unavailable."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        raise errors.ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="Choose another --port, or 0 for a free one.",
        ) from error
    with listener:
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _token(home: Path) -> str:
    """Return the token of the home folder, created once, so that it stays valid over restarts."""
    path = home / "token"
    if not path.exists() or not path.read_text().strip():
        # Empty after a full disk or a power failure.
        _write_private(path, secrets.token_urlsafe(32) + "\n")
    path.chmod(0o600)
    return path.read_text().strip()


def _write_private(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    partial.replace(path)


def _answers(path: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        client.connect(str(path))
        client.sendall(b"PING\r\n")
        return client.recv(16).startswith(b"+PONG")
    return False


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    # nohup ignores SIGHUP, as the service must outlive its terminal.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str, stream: TextIO = sys.stderr) -> None:
    # The terminal may be gone; the service continues.
    with contextlib.suppress(OSError):
        stream.write(text + "\n")
        stream.flush()


def lines(url: str, token: str) -> list[str]:
    """Return messages for the user. The login link is that of the service's own token, and works once."""
    messages = []
    link = _asked(f"{url}/v1/login-links", token, method="POST").get("url")
    if link:
        messages.append(f"Dashboard: {link}  (works once, for ten minutes)")
    if _asked(f"{url}/v1/tokens/self", None):
        messages.append(f"TUNESMITH_OPEN is set: {url} accepts every request without a token.")
    return messages


def _asked(url: str, token: str | None, *, method: str = "GET") -> dict[str, str]:
    """Return the response; empty if the request failed, as the service runs anyway."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # No proxy: the address is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310 - our own address
        with opener.open(request, timeout=_SECONDS) as answer:
            found: dict[str, str] = json.load(answer)
            return found
    except (OSError, ValueError):
        return {}
