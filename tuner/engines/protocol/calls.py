"""The far end of a ``children.Child``: calls of functions by name, one at a time, over a connection."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from multiprocessing import connection
from typing import Any

READY = "ready"


def serve(functions: Mapping[str, Callable[..., Any]], calls: connection.Connection) -> None:
    """Say that this process is ready, and answer until the other side closes the connection."""
    calls.send((READY, os.getpid()))
    while True:
        try:
            function, arguments = calls.recv()
        except EOFError:
            return
        try:
            answer = (True, functions[function](*arguments))
        except Exception:  # noqa: BLE001 - whatever a candidate raises is its outcome
            answer = (False, traceback.format_exc()[-4000:])
        calls.send(answer)
