"""What a process does in its session on a device behind an RPC tracker: see ``tuner.engines.protocol.lanes``."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import rpc, te

from tuner.engines.protocol.lanes import Ended
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import candidates, compiling, running, speedups, targets

Result = tuple[Ended, Any]

_BIG_CORES = 1
_PROBE_SIZE = 64
_sessions: list[Any] = []
"""None, or the one that is open."""


def set_up() -> None:
    speedups.install()


def build_probe(target: str, threads: int, path: str) -> Result:
    """Build ``3·x + 1`` like the candidates of a target."""
    try:
        resolved = targets.resolve(target, threads)
        given = te.placeholder((_PROBE_SIZE,), name="given", dtype="float32")
        answer = te.compute((_PROBE_SIZE,), lambda place: given[place] * 3.0 + 1.0, name="answer")
        library = tvm.build(te.create_schedule(answer.op), [given, answer], target=resolved, name="probe")
        library.export_library(path, fcompile=candidates.linker(resolved))
    except EngineFailure as failure:
        return _refused(failure)
    return Ended.OK, None


def open_session(
    host: str, port: int, match_key: str, session_timeout: float, threads: int, probe: str | None
) -> Result:
    close_session()
    try:
        session = rpc.connect(host, port, match_key, session_timeout=session_timeout)
    except tvm.TVMError as error:
        return (Ended.STALE if "cannot find server that matches" in str(error) else Ended.LOST), _last_line(error)
    _sessions.append(session)
    try:
        with contextlib.suppress(AttributeError, ValueError):
            # Minimal runtimes have no pool to configure.
            session.get_function("runtime.config_threadpool")(_BIG_CORES, threads)
        ended = _prove(session, probe) if probe else (Ended.OK, None)
    except tvm.TVMError as error:
        ended = _ended(error)
    if ended[0] is not Ended.OK:
        close_session()
    return ended


def close_session() -> Result:
    _sessions.clear()
    # A session ends when nothing refers to it any more.
    gc.collect()
    return Ended.OK, None


def measure_remotely(
    path: str, shapes: candidates.Shapes, number: int, repeat: int, min_repeat_ms: int, flush: bool
) -> Result:
    """As ``candidates.measure``, on the device."""

    def measure(session: Any) -> list[float]:
        fill = session.get_function("tvm.contrib.random.random_fill")
        library = _load(session, path)
        return candidates.sample(library, session.cpu(0), fill, shapes, number, repeat, min_repeat_ms, flush)

    return _in_session(measure)


def run_remotely(bundle: str, inputs: str | None, outputs: str | None, repeat: int | None, number: int) -> Result:
    """``{outputs, samples}`` of a bundle on the device; ``outputs`` is where to write them."""

    def run(session: Any) -> Json:
        running.modified_ns(bundle)
        library = Path(bundle) / compiling.LIBRARY
        loaded = running.assemble(bundle, lambda: (_load(session, str(library)), session.cpu(0)))
        specs = running.run_loaded(loaded, inputs, outputs)
        return {"outputs": specs, "samples": running.sample_loaded(loaded, inputs, number, repeat) if repeat else []}

    return _in_session(run)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "build_probe": build_probe,
    "open_session": open_session,
    "close_session": close_session,
    "measure_remotely": measure_remotely,
    "run_remotely": run_remotely,
}


def _prove(session: Any, probe: str) -> Result:
    try:
        library = _load(session, probe)
    except tvm.error.RPCError as error:
        told = _last_line(error)
        # 0.19 often says nothing below its heading; the server's own output does not either.
        reason = "" if told.endswith("Error caught from RPC call:") else f": {told}"
        return Ended.WRONG_DEVICE, f"it cannot load what is built for this target{reason}"
    device = session.cpu(0)
    given = np.arange(_PROBE_SIZE, dtype="float32")
    answer = tvm.nd.empty(given.shape, "float32", device)
    library["probe"](tvm.nd.array(given, device), answer)
    if not np.array_equal(answer.numpy(), given * 3 + 1):
        return Ended.WRONG_ANSWER, "it computes 3·x + 1 wrongly"
    return Ended.OK, None


def _load(session: Any, path: str) -> Any:
    name = Path(path).name
    session.upload(path)
    try:
        return session.load_module(name)
    finally:
        with contextlib.suppress(tvm.TVMError):
            session.remove(name)


def _in_session(work: Callable[[Any], Any]) -> Result:
    try:
        return Ended.OK, work(_sessions[0])
    except EngineFailure as failure:
        cause = failure.__cause__
        return _ended(cause) if isinstance(cause, tvm.error.RPCError | tvm.error.InternalError) else _refused(failure)
    except tvm.TVMError as error:
        return _ended(error)
    finally:
        gc.collect()


def _ended(error: BaseException) -> Result:
    """An error that the device tells of leaves the session as it was; any other of TVM's comes from a broken one."""
    if isinstance(error, tvm.error.RPCSessionTimeoutError):
        return Ended.EXPIRED, _last_line(error)
    return (Ended.RAISED if isinstance(error, tvm.error.RPCError) else Ended.LOST), _last_line(error)


def _refused(failure: EngineFailure) -> Result:
    return Ended.REFUSED, {
        "code": failure.code,
        "message": failure.message,
        "hint": failure.hint,
        "details": failure.details,
    }


def _last_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1][-500:] if lines else type(error).__name__
