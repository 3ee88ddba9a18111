"""Engine sessions: start an engine, send requests, detect failures, and end it with all of its processes.

An engine that crashes, hangs, sends garbage or stops its heartbeat fails one request: the session kills its process
group, raises a typed error with the end of the engine log, and cannot be used again.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self

from domain import errors
from domain.ports import Canceled, OnEvent
from tuner.engines.protocol import messages
from tuner.engines.protocol.messages import Event, MalformedMessage, Request
from tuner.host import orphans
from tuner.host.catalogue import ROOT, EngineSpec
from tuner.host.orphans import sweep
from tuner.sandbox import limits as sandbox
from tuner.sandbox.limits import Limits

__all__ = ["Canceled", "EngineSession", "Limits", "sweep"]

_POLL_SECONDS = 0.1
_CANCEL_SECONDS = 0.2
_TERM_SECONDS = 0.5
_CLOSE_SECONDS = 2.0
_CHUNK_BYTES = 256 * 1024
_LOG_TAIL_BYTES = 4000
_ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "PYTHONUNBUFFERED": "1",
    "PYTHONNOUSERSITE": "1",
    # ONNX Runtime would store telemetry in the home folder and send it.
    "ORT_DISABLE_TELEMETRY": "1",
}


class EngineSession:
    """The implementation of ``domain.ports.Engine`` with a process; also a context manager."""

    def __init__(
        self,
        spec: EngineSpec,
        python: Path,
        log_path: Path,
        silence_timeout: float,
        home: Path | None,
        limits: Limits | None,
    ) -> None:
        self._name = spec.name
        self._silence_timeout = silence_timeout
        self._log_path = log_path
        self._events = self._requests = -1
        self._buffer = bytearray()
        self._next_id = 1
        self._dead: str | None = None
        self._hello: dict[str, Any] = {}
        self._last_heard = time.monotonic()
        self._next_cancel_check = 0.0
        self._note = orphans.note(spec.name, home)
        limits = limits or Limits()
        confined = replace(
            limits,
            hidden=(*limits.hidden, *sandbox.hidden(home, os.environ)),
            sockets=(*limits.sockets, *sandbox.leading_out(home, os.environ)),
            writable=(*limits.writable, *sandbox.writable(os.environ), str(self._note.folder)),
        )
        environment = {
            **sandbox.environment(os.environ),
            **limits.environment,
            **_ENVIRONMENT,
            **self._note.environment,
        }
        # TVM creates the latter at import, by default ~/.tvm_test_data.
        environment |= dict.fromkeys(("TMPDIR", "TEST_DATA_ROOT_PATH"), str(self._note.folder))
        self._spawn(python, [*confined.command(), str(python), "-m", spec.module], environment)

    @classmethod
    def start(
        cls,
        spec: EngineSpec,
        python: Path,
        *,
        log_path: Path,
        hello_timeout: float = 120.0,
        silence_timeout: float = 60.0,
        home: Path | None = None,
        limits: Limits | None = None,
        canceled: Callable[[], bool] | None = None,
    ) -> Self:
        """Start the engine and wait for its hello. The log is appended to; times are in seconds.

        Even without ``limits``, it is sandboxed: no credentials, no privileges, and all files are read-only except
        those of its temporary folder. With ``home``, ``sweep(home)`` can later remove orphans. Raises
        EngineStartFailed and Canceled.
        """
        try:
            session = cls(spec, python, log_path, silence_timeout, home, limits)
        except OSError as error:
            raise errors.EngineStartFailed(
                f"the {spec.name} engine did not start: {error}", details={"python": str(python)}
            ) from error
        try:
            session._shake_hands(hello_timeout, canceled)
        except errors.EngineError as error:
            session._end(error.message)
            raise errors.EngineStartFailed(
                f"the {spec.name} engine did not start: {error.message}",
                details={"python": str(python), **error.details},
            ) from error
        except BaseException:
            session._end("it was stopped during startup")
            raise
        return session

    @property
    def hello(self) -> dict[str, Any]:
        return self._hello

    @property
    def alive(self) -> bool:
        return self._dead is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None,
        on_event: OnEvent | None = None,
        canceled: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        """Implement ``domain.ports.Engine.request``. Params too large for a message raise MalformedMessage
        without being sent."""
        if self._dead is not None:
            raise errors.EngineCrashed(f"the {self._name} engine has ended: {self._dead}")
        line = messages.encode_request(Request(id=self._next_id, method=method, params=params))
        deadline = None if timeout is None else time.monotonic() + timeout
        self._last_heard = time.monotonic()
        try:
            self._send(line, deadline, canceled)
            answer = self._await_answer(deadline, on_event, canceled)
        except BaseException as error:
            self._end(str(error) or type(error).__name__)
            raise
        self._next_id += 1
        if answer.kind == messages.RESULT:
            return answer.data
        raise _refusal(answer.data)

    def limit_memory(self, data_bytes: int | None) -> None:
        if self._dead is None:
            # The engine may have ended since.
            with contextlib.suppress(ProcessLookupError):
                sandbox.set_data_limit(self.pid, data_bytes)

    def close(self) -> None:
        """Let the engine exit by itself, then kill what is left."""
        if self._dead is None:
            with contextlib.suppress(OSError):
                os.close(self._requests)
            self._requests = -1
            self._wait(_CLOSE_SECONDS)
            self._end("it was closed", gently=False)

    def kill(self) -> None:
        self._end("it was killed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self, python: Path, command: list[str], environment: dict[str, str]) -> None:
        ends: list[int] = []
        try:
            self._log_path.parent.mkdir(parents=True, exist_ok=True)
            self._events, engine_events = os.pipe()
            ends.append(engine_events)
            engine_requests, self._requests = os.pipe()
            ends.append(engine_requests)
            os.set_blocking(self._requests, False)
            # Not from the started program, which is the one that enters the sandbox.
            python.stat()
            with self._log_path.open("ab") as log:
                self._log_start = log.seek(0, os.SEEK_END)
                self._process = subprocess.Popen(
                    [*command, "--event-fd", str(engine_events)],
                    cwd=ROOT,
                    env=environment,
                    stdin=engine_requests,
                    stdout=log,
                    stderr=log,
                    pass_fds=[engine_events],
                    start_new_session=True,
                )
        except BaseException:
            self._clean_up()
            raise
        finally:
            for end in ends:
                os.close(end)

    def _shake_hands(self, timeout: float, canceled: Callable[[], bool] | None) -> None:
        event = self._next_event(time.monotonic() + timeout, canceled)
        if event.kind != messages.HELLO:
            raise self._failure(errors.EngineGarbled, f"its first message was {event.kind!r} instead of hello")
        spoken = event.data.get("protocol")
        if spoken != messages.PROTOCOL_VERSION:
            raise self._failure(
                errors.EngineGarbled, f"it uses protocol {spoken!r}, this host protocol {messages.PROTOCOL_VERSION}"
            )
        self._hello = event.data

    def _send(self, line: bytes, deadline: float | None, canceled: Callable[[], bool] | None) -> None:
        rest = memoryview(line)
        while rest:
            try:
                rest = rest[os.write(self._requests, rest) :]
            except BlockingIOError:
                # Events are read later: an engine that receives a request does not answer yet.
                _is_ready(self._requests, select.POLLOUT, _POLL_SECONDS)
                self._check(deadline, canceled)
                self._check_silence()
            except BrokenPipeError:
                self._wait(_CLOSE_SECONDS)
                self._crashed()

    def _await_answer(
        self, deadline: float | None, on_event: OnEvent | None, canceled: Callable[[], bool] | None
    ) -> Event:
        while True:
            event = self._next_event(deadline, canceled)
            if event.kind == messages.HEARTBEAT:
                continue
            if event.request != self._next_id:
                raise self._failure(
                    errors.EngineGarbled, f"it sent {event.kind!r} for the wrong request {event.request}"
                )
            if event.kind in (messages.RESULT, messages.ERROR):
                return event
            if on_event:
                on_event(event.kind, event.data)

    def _next_event(self, deadline: float | None, canceled: Callable[[], bool] | None) -> Event:
        while True:
            self._check(deadline, canceled)
            end = self._buffer.find(b"\n")
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                return self._decoded(line)
            if len(self._buffer) > messages.MAX_LINE_BYTES:
                raise self._failure(
                    errors.EngineGarbled, f"it sent a line of more than {messages.MAX_LINE_BYTES} bytes"
                )
            self._read()

    def _read(self) -> None:
        # Checked before reading, so that output from before the exit is still read.
        ended = self._ended()
        if _is_ready(self._events, select.POLLIN, 0 if ended else _POLL_SECONDS):
            chunk = os.read(self._events, _CHUNK_BYTES)
            if chunk:
                self._last_heard = time.monotonic()
                self._buffer += chunk
                return
            self._wait(_CLOSE_SECONDS)
            if not self._ended():
                raise self._failure(errors.EngineGarbled, "it closed its event descriptor")
            self._crashed()
        elif ended:
            # A child of the engine may still have the descriptor open.
            self._crashed()
        else:
            self._check_silence()

    def _decoded(self, line: bytes) -> Event:
        try:
            return messages.decode_event(line)
        except MalformedMessage as error:
            raise self._failure(errors.EngineGarbled, f"it sent an invalid message: {error}") from error

    def _check(self, deadline: float | None, canceled: Callable[[], bool] | None) -> None:
        now = time.monotonic()
        if canceled and now >= self._next_cancel_check:
            self._next_cancel_check = now + _CANCEL_SECONDS
            if canceled():
                raise Canceled
        if deadline is not None and now > deadline:
            raise self._failure(errors.EngineTimeout, "it exceeded its time limit")

    def _check_silence(self) -> None:
        # Only if no output is pending, as the host may have been busy or suspended itself.
        if time.monotonic() - self._last_heard > self._silence_timeout and not self._ended():
            raise self._failure(errors.EngineSilent, f"no heartbeat for {self._silence_timeout:g} s")

    def _crashed(self) -> NoReturn:
        self._end("it ended")
        status = self._process.returncode
        if status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
            raise self._failure(errors.EngineCrashed, f"it was killed by {name}", signal=name)
        raise self._failure(errors.EngineCrashed, f"it ended with exit status {status}", exit_code=status)

    def _failure(self, kind: type[errors.EngineError], message: str, **details: Any) -> errors.EngineError:
        tail = self._log_tail()
        return kind(
            f"{self._name} engine: {message}",
            details={"engine": self._name, "log": str(self._log_path), "log_tail": tail, **details},
        )

    def _log_tail(self) -> str:
        """Return the end of this engine's log."""
        with contextlib.suppress(OSError), self._log_path.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            return log.read(_LOG_TAIL_BYTES).decode(errors="replace")
        return ""

    def _end(self, why: str, *, gently: bool = True) -> None:
        if self._dead is not None:
            return
        self._dead = why
        group = self._process.pid
        if gently and not self._ended():
            orphans.signal_group(group, signal.SIGTERM)
            self._wait(_TERM_SECONDS)
        # The leader is reaped last: until then, its pid cannot be reused, so no other process is killed.
        orphans.signal_group(group, signal.SIGKILL)
        self._process.wait()
        for pid in orphans.marked({self._note.mark}):
            orphans.kill(pid)
        self._clean_up()

    def _clean_up(self) -> None:
        for descriptor in (self._requests, self._events):
            if descriptor >= 0:
                os.close(descriptor)
        self._note.remove()

    def _ended(self) -> bool:
        """Return whether the engine's first process ended, without reaping it."""
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            # Another thread of this process waits for any child and reaped it.
            return True

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._ended() and time.monotonic() < deadline:
            time.sleep(0.01)


def _refusal(data: dict[str, Any]) -> errors.EngineRequestFailed:
    details = data.get("details")
    return errors.EngineRequestFailed(
        str(data.get("code", "unknown")),
        str(data.get("message", "the engine gave no reason")),
        hint=data.get("hint") if isinstance(data.get("hint"), str) else None,
        details=details if isinstance(details, dict) else None,
    )


def _is_ready(descriptor: int, events: int, seconds: float) -> bool:
    """Wait for a descriptor. ``select.select`` supports only descriptors below 1024, of which a server has more."""
    waiting = select.poll()
    waiting.register(descriptor, events)
    return bool(waiting.poll(seconds * 1000))
