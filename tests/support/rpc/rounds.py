"""Rounds of tuning on real RPC servers, whichever engine."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.rpc.boards import Rack
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.asking import Trials
from tuner.host.session import EngineSession

MEASURE = {"number": 1, "repeat": 1, "min_repeat_ms": 1, "timeout": 20.0}
LASTING = {**MEASURE, "repeat": 3, "min_repeat_ms": 100}
"""Long enough that a device is at work when it goes."""

_COUNTS = itertools.count(100)


def tune(
    engine: EngineSession,
    params: dict[str, Any],
    spool: Path,
    on_trial: Callable[[dict[str, Any]], None] = lambda _: None,
    **more: Any,
) -> tuple[dict[str, Any], Trials, list[dict[str, Any]]]:
    """The answer, the trials, and the devices that were lost."""
    lost = []

    def hear(kind: str, data: dict[str, Any]) -> None:
        if kind == "device":
            lost.append(data)
        if kind == "trial":
            on_trial(data)

    # Other options are another search, which has measured nothing yet.
    options = {"keep_layout": False, "n_trial": next(_COUNTS)}
    usual = {"trials": 8, "measure": MEASURE, "options": options}
    answer, trials = asking.tune(engine, {**usual, **params}, spool, on_event=hear, **more)
    return answer, trials, lost


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
