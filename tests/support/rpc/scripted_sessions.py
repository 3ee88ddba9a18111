"""Sessions on devices that do as their port says, for ``tuner.engines.runtime.rpc_pool``; runs in any interpreter."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tuner.engines.runtime.rpc_pool import Ended

GOOD, WRONG_ANSWER, WRONG_DEVICE, OTHER_RELEASE = 1, 2, 3, 4

Result = tuple[Ended, Any]
_session: list[int] = []


def set_up() -> None:
    pass


def build_probe(target: str, threads: int, path: str) -> Result:
    Path(path).write_text(target)
    return Ended.OK, None


def open_session(host: str, port: int, match_key: str, timeout: float, threads: int, probe: str | None) -> Result:
    if probe and port % 10 == WRONG_ANSWER:
        return Ended.WRONG_ANSWER, "2 and 2 is 5"
    if probe and port % 10 == WRONG_DEVICE:
        return Ended.WRONG_DEVICE, "another architecture"
    if port % 10 == OTHER_RELEASE:
        return Ended.LOST, "InternalError: Check failed: size <= pending_request_bytes_ (8 vs. 0) : "
    _session[:] = [port]
    return Ended.OK, None


def close_session() -> Result:
    _session.clear()
    return Ended.OK, None


def do(what: str, gone: str) -> Result:
    """``crash`` takes the session along, ``crash once`` only the first time, ``vanish`` hangs and adds its port to the
    file ``gone``, ``sleep`` is too slow, anything else comes back, ``nap`` after a while."""
    assert _session
    if what == "crash" or (what == "crash once" and not Path(gone).exists()):
        Path(gone).touch()
        return Ended.LOST, "connection reset"
    if what == "vanish":
        with Path(gone).open("a") as file:
            file.write(f"{_session[0]}\n")
        time.sleep(60)
    if what == "raise":
        return Ended.RAISED, "division by zero"
    if what == "sleep":
        time.sleep(2.5)
    if what == "nap":
        time.sleep(0.2)
    return Ended.OK, what


FUNCTIONS = {each.__name__: each for each in (build_probe, open_session, close_session, do)}
