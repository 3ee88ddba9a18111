"""The engines: each is started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner import catalogue, environments
from tuner.environments import EngineHealth
from worker.doctor import findings
from worker.doctor.findings import Finding
from worker.engines import COMPILERS

CHECK = "engines"


def check(home: Path, *, hello_seconds: float) -> list[Finding]:
    names = sorted(catalogue.ENGINES)
    return judged([environments.doctor(catalogue.get(name), home, hello_timeout=hello_seconds) for name in names])


def judged(found: Sequence[EngineHealth]) -> list[Finding]:
    """One of TVM's engines may be missing: then its tuners are not to be had here."""
    usable = {health.name for health in found if not health.problems}
    return [_finding(health, one_of_two=bool(usable & set(COMPILERS))) for health in found]


def _finding(health: EngineHealth, *, one_of_two: bool) -> Finding:
    if not health.problems:
        tools = " ".join(f"{name} {version}" for name, version in health.toolchain.items() if name != "engine")
        return findings.ok(CHECK, f"{health.name}: {tools} (starts in {health.start_seconds or 0:.1f} s)")
    hint = f"tunesmith engines install {health.name}; tunesmith engines doctor tells more."
    message = f"{health.name}: {health.problems[0]}"
    if not health.installed and health.name in COMPILERS and one_of_two:
        return findings.warn(CHECK, "engine_not_installed", message, hint)
    return findings.fail(CHECK, "engine_broken" if health.installed else "engine_not_installed", message, hint)
