"""Interpreters for the engines of a host: small scripts that mark and watch whatever they start."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path

from tests.support.topology import scripted_engine, witness
from tuner.host import catalogue, environments, orphans
from tunesmith import connection

MARK = "TUNESMITH_TEST_TOPOLOGY"


class Engines(StrEnum):
    REAL = "real"
    """TVM 0.19 and ONNX Runtime."""
    SCRIPTED = "scripted"
    """A program that answers by script, as quickly as it should."""


def write(folder: Path, kind: Engines, *, mark: str, witnesses: Path) -> dict[str, str]:
    """Make the scripts; returns the settings that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    witnesses.mkdir(parents=True, exist_ok=True)
    settings = {}
    for name in ("relay", "onnx"):
        script = folder / f"{name}-python"
        exports = {MARK: mark, witness.FOLDER: str(witnesses)}
        if kind is Engines.REAL:
            # The witness watches TVM; the onnx engine has none, and is never timed beside another engine.
            exports |= {"TUNESMITH_ENGINE_PLUGINS": witness.__name__} if name == "relay" else {}
            python = environments.interpreter(catalogue.get(name), connection.home())
            command = f'exec {shlex.quote(str(python))} "$@"'
        else:
            # Instead of the module that comes as "-m tuner.engines.NAME".
            command = f'shift 2\nexec {shlex.quote(sys.executable)} -m {scripted_engine.__name__} {name} "$@"'
        lines = [f"export {variable}={shlex.quote(value)}" for variable, value in exports.items()]
        script.write_text("\n".join(["#!/bin/sh", *lines, command]) + "\n")
        script.chmod(0o755)
        settings[environments.variable(catalogue.get(name))] = str(script)
    return settings


def alive(mark: str) -> list[int]:
    """Engine processes of a topology, and whatever they started."""
    return list(orphans.marked({f"{MARK}={mark}"}))
