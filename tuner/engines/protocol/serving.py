"""Engine side of the protocol: read requests, call handlers, emit events.

An engine program calls ``serve`` with a mapping of method names to handlers. A handler accepts the request's params and
an ``Emitter`` and returns the result's data. It reports an expected failure by raising ``EngineFailure``; any other
exception becomes an ``error`` event with code ``engine_internal_error`` and the traceback in its details. If memory
was missing, the code is ``out_of_memory``, whichever exception a handler made of that.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import gc
import os
import re
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import BinaryIO

from tuner.engines.protocol import messages
from tuner.engines.protocol.messages import Event, Json, Request

HEARTBEAT_SECONDS = 2.0
OUT_OF_MEMORY = "out_of_memory"
_PR_SET_PDEATHSIG = 1
_LEAVE_SECONDS = 1.5
_LOOK_SECONDS = 0.5
_OUT_OF_MEMORY = re.compile(
    "bad_alloc|Failed to allocate memory|Arena alloc failed|Cannot allocate memory(?! symbolic)"
)
"""Texts of C++, ONNX Runtime, protobuf and the system. TVM 0.19 says "Cannot allocate memory symbolic tensor shape" of
tensors whose sizes it does not know."""


class EngineFailure(Exception):
    """An expected failure of one request, in machine-readable form.

    ``code`` is stable snake_case; ``hint`` says what the caller can do.
    """

    def __init__(self, code: str, message: str, *, hint: str | None = None, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.details = details or {}

    @property
    def data(self) -> Json:
        """Data of the ``error`` event, equal to the constructor's arguments."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}


class Emitter:
    """Writes the events of one request; safe to call from any thread."""

    def __init__(self, stream: BinaryIO, lock: threading.Lock, request: int | None) -> None:
        self._stream = stream
        self._lock = lock
        self._request = request

    def emit(self, kind: str, data: Json | None = None) -> None:
        line = messages.encode_event(Event(kind=kind, request=self._request, data=data or {}))
        with self._lock:
            self._stream.write(line)
            self._stream.flush()


Handler = Callable[[Json, Emitter], Json]


def serve(handlers: Mapping[str, Handler], hello: Callable[[], Json]) -> int:
    """Serve requests until standard input closes; return the process's exit status.

    ``hello`` returns the opening event's data: ``engine``, ``toolchain``, ``host`` and whatever else the engine
    announces; ``protocol`` is added here.
    """
    event_fd = _arguments().event_fd
    # Children of the engine (builders, compilers) must not read its requests.
    requests = os.fdopen(os.dup(0), "rb")
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.close(devnull)
    _watch(requests.fileno())
    stream = os.fdopen(event_fd, "wb")
    os.set_inheritable(event_fd, False)
    lock = threading.Lock()
    Emitter(stream, lock, None).emit(messages.HELLO, {"protocol": messages.PROTOCOL_VERSION, **hello()})
    _start_heartbeat(Emitter(stream, lock, None))
    for line in requests:
        _answer(messages.decode_request(line), handlers, stream, lock)
    return 0


def _answer(request: Request, handlers: Mapping[str, Handler], stream: BinaryIO, lock: threading.Lock) -> None:
    emitter = Emitter(stream, lock, request.id)
    failed = _failure(request, handlers.get(request.method), emitter)
    if failed is None:
        return
    if failed["code"] == OUT_OF_MEMORY:
        # The request's objects are in reference cycles with the exception's frames; the next request needs the memory.
        gc.collect()
    emitter.emit(messages.ERROR, failed)


def _failure(request: Request, handler: Handler | None, emitter: Emitter) -> Json | None:
    """Emit the result of a request; return the data of its ``error`` event if there is none."""
    try:
        if handler is None:
            raise EngineFailure("unknown_method", f"unknown method {request.method!r}")
        emitter.emit(messages.RESULT, handler(request.params, emitter))
    except EngineFailure as failure:
        return {**failure.data, "code": OUT_OF_MEMORY if is_memory(failure) else failure.code}
    except Exception as error:  # noqa: BLE001 - whatever a handler raises must reach the host as an event
        traceback.print_exc()
        sys.stderr.flush()
        text = traceback.format_exc()[-8000:]
        # A full disk has a code of its own, because it is not a defect.
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        code = "disk_full" if full else OUT_OF_MEMORY if is_memory(error) else "engine_internal_error"
        return EngineFailure(code, f"{type(error).__name__}: {error}"[:2000], details={"traceback": text}).data
    return None


def is_memory(error: BaseException) -> bool:
    """Return whether missing memory is the cause of an exception, directly or through a chain of causes."""
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)):
        return True
    return error.__cause__ is not None and error.__cause__ is not error and is_memory(error.__cause__)


def _start_heartbeat(emitter: Emitter) -> None:
    def beat() -> None:
        pause = threading.Event()
        while not pause.wait(HEARTBEAT_SECONDS):
            try:
                emitter.emit(messages.HEARTBEAT)
            except (OSError, ValueError):
                return

    threading.Thread(target=beat, name="heartbeat", daemon=True).start()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A Tunesmith engine, started by its host process.")
    parser.add_argument("--event-fd", type=int, required=True, help="file descriptor for events")
    return parser.parse_args()


def die_with_parent() -> None:
    """Ask Linux to kill this process when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch(requests: int) -> None:
    """Fork a process that kills the whole process group once the host or the engine has ended.

    A parent-death signal would reach the engine but none of its builders, and would already fire when the host's
    starting thread ends. The request pipe hangs up when the host closes it or dies in any way.
    """
    engine = os.getpid()
    if os.getpgrp() != engine or os.fork() != 0:
        return
    try:
        os.closerange(3, requests)
        os.closerange(requests + 1, os.sysconf("SC_OPEN_MAX"))
        host = select.poll()
        host.register(requests, 0)
        while os.getppid() == engine and not host.poll(_LOOK_SECONDS * 1000):
            pass
        leave_by = time.monotonic() + _LEAVE_SECONDS
        while os.getppid() == engine and time.monotonic() < leave_by:
            time.sleep(0.02)
    finally:
        os.killpg(engine, signal.SIGKILL)
