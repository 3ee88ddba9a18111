"""Emulators for builds that no device runs: results can be compared there, speeds cannot."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from domain import errors, targets
from domain.jobs import JobRequest, RunnerKind
from tuner.host import catalogue
from worker.engines import MAIN, EnginePool

_NOT_EMULATED = "not_emulated"
"""Code of the library engine: the emulator lacks instructions of the target."""


@dataclass(frozen=True, kw_only=True)
class Emulation:
    machine: str = ""
    """What the library engine emulates for the job; empty if nothing."""
    emulator: str = ""
    """Its name; empty if the builds are not run."""
    lacks: str = ""
    """What the worker would need to emulate the machine; empty if it does, or if there is no emulator of it."""


def find(request: JobRequest, target: str, pool: EnginePool) -> Emulation:
    """Return how the builds of a job for that target are run: on machines that no device of the job is.

    Raises EngineError.
    """
    machine = targets.emulated_machine(target)
    is_here = machine == targets.machine_of(platform.machine())
    if request.runner is not RunnerKind.NONE or machine is None or is_here:
        return Emulation()
    try:
        known = pool.get(catalogue.LIBRARY).hello.get("emulators", {}).get(machine)
    except errors.EngineNotInstalled:
        return Emulation()
    pool.close(catalogue.LIBRARY, role=MAIN)
    if known is None:
        return Emulation()
    if known["lacks"]:
        return Emulation(lacks=str(known["lacks"]))
    return Emulation(machine=machine, emulator=str(known["name"]))


def excuse(error: errors.TunesmithError) -> str | None:
    """Return why an error of an emulated run says nothing about the build; None if it does."""
    if isinstance(error, errors.EngineTimeout):
        return "it takes too long"
    if isinstance(error, errors.EngineRequestFailed) and error.engine_code == _NOT_EMULATED:
        return error.message
    return None
