"""The far end of a ``children.Child``: calls of functions by name, one at a time, over a connection."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection
from typing import Any

from tuner.engines.protocol import serving

READY = "ready"

Functions = Mapping[str, Callable[..., Any]]


def load(arguments: Sequence[str]) -> tuple[connection.Connection, Functions]:
    """For a program with the arguments ``FD MODULE``: that socket, and ``MODULE.FUNCTIONS`` after its ``set_up()``."""
    serving.die_with_parent()
    opened = connection.Connection(int(arguments[0]))
    os.set_inheritable(opened.fileno(), False)
    module = importlib.import_module(arguments[1])
    module.set_up()
    return opened, module.FUNCTIONS


def serve(functions: Functions, calls: connection.Connection) -> None:
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
