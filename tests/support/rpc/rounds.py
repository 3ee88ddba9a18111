"""Rounds of tuning on real RPC servers, whichever engine."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.rpc.boards import Rack
from tuner.host.session import EngineSession

MEASURE = {"number": 1, "repeat": 1, "min_repeat_ms": 1, "timeout": 20.0}
LASTING = {**MEASURE, "repeat": 3, "min_repeat_ms": 100}
"""Long enough that a device is at work when it goes."""

Trials = list[dict[str, Any]]

_COUNTS = itertools.count(100)


def tune(
    engine: EngineSession,
    params: dict[str, Any],
    spool: Path,
    on_trial: Callable[[dict[str, Any]], None] = lambda _: None,
    **more: Any,
) -> tuple[dict[str, Any], Trials, list[dict[str, Any]]]:
    """The answer, the trials, and the devices that were lost."""
    trials: Trials = []
    lost = []

    def keep(kind: str, data: dict[str, Any]) -> None:
        if kind == "device":
            lost.append(data)
        if kind == "trial":
            trials.append(data)
            on_trial(data)

    request = {
        "trials": 8,
        "measure": MEASURE,
        # Other options are another search, which has measured nothing yet.
        "options": {"keep_layout": False, "n_trial": next(_COUNTS)},
        "history": None,
        "spool": str(spool),
        "seconds": None,
        "first_trial": 0,
        **params,
        **more,
    }
    return engine.request("tune", request, timeout=120, on_event=keep), trials, lost


def fresh(runner: dict[str, Any]) -> dict[str, Any]:
    """Another runner: a device that is lost to one for the rest of the engine's life is not lost to the others."""
    return {**runner, "session_timeout": next(_COUNTS)}


def lose_one(
    engine: EngineSession, params: dict[str, Any], boards: Rack, spool: Path, trials: int
) -> tuple[str, Trials, list[dict[str, Any]]]:
    """Of three devices kill the first one that has measured something, most being left to do; returns its name too."""
    boards.start_servers(1)
    killed: list[str] = []

    def kill(trial: dict[str, Any]) -> None:
        if not killed and trial["device"]:
            killed.append(trial["device"])
            boards.end(trial["device"])

    answer, measured, lost = tune(engine, params, spool, kill, runner=boards.runner(), measure=LASTING, trials=trials)
    assert answer["trials"] == trials
    [dying] = killed
    return dying, measured, lost


def content(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}
