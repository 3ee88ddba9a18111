"""Checks of this host: home folder, compiler, sandbox, and engines, which are started."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from process import homes
from serve.doctor import findings
from serve.doctor.findings import Finding
from tuner.host import environments
from tuner.host.environments import EngineHealth
from tuner.sandbox import probing
from worker.engines import COMPILERS

HOME, COMPILER, SANDBOX, ENGINES = "home", "compiler", "sandbox", "engines"
_GIB = 1024**3
_TIGHT_BYTES = 5 * _GIB
"""An engine environment needs about 600 MB, a large model and its builds the same again."""
_FULL_BYTES = _GIB // 2
_COMPILE_SECONDS = 60
_SANDBOX_HINT = "docs/explanation/threat-model.md describes the fallbacks, and what a container must allow."


def home(folder: Path) -> list[Finding]:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
            file.write(b"1")
            file.flush()
        free = shutil.disk_usage(folder).free
        open_to_others = homes.wrong_with(folder)
    except OSError as error:
        reason = f"{folder} is not writable: {error.strerror or error}"
        return [findings.fail(HOME, "home_not_writable", reason, homes.NEEDED)]
    found = [space(folder, free)]
    if open_to_others:
        found.append(findings.warn(HOME, "home_open", open_to_others, homes.HINT))
    return found


def space(folder: Path, free: int) -> Finding:
    space = f"{folder}: {free / _GIB:.1f} GiB free"
    hint = (
        "Remove old logs and environments (docs/how-to/operations.md), or set TUNESMITH_HOME to a folder "
        "on another disk."
    )
    if free < _FULL_BYTES:
        return findings.fail(HOME, "disk_full", space, hint)
    return findings.warn(HOME, "disk_low", space, hint) if free < _TIGHT_BYTES else findings.ok(HOME, space)


def compiler() -> list[Finding]:
    """Check the compiler, with which TVM links tuned modules, by using it."""
    name = next((name for name in (os.environ.get("CC"), "cc", "gcc") if name and shutil.which(name)), None)
    if name is None:
        hint = "Install one (Debian: apt install gcc). An API without a worker needs none."
        return [findings.warn(COMPILER, "compiler_not_found", "no C compiler found to link tuned modules", hint)]
    with tempfile.TemporaryDirectory(prefix="tunesmith-doctor-") as folder:
        source, library = Path(folder) / "probe.c", Path(folder) / "probe.so"
        source.write_text("#include <math.h>\ndouble probe(double x) { return sqrt(x); }\n")
        command = [name, "-shared", "-fPIC", "-o", str(library), str(source), "-lm"]
        try:
            made = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            return [_broken(name, str(error))]
        if made.returncode != 0 or not library.exists():
            return [_broken(name, made.stderr.strip().partition("\n")[0] or f"exit status {made.returncode}")]
    return [findings.ok(COMPILER, f"{shutil.which(name)} links a shared library")]


def _broken(name: str, reason: str) -> Finding:
    hint = "Install its headers and linker too (Debian: apt install gcc libc6-dev)."
    return findings.fail(COMPILER, "compiler_broken", f"{name} cannot link: {reason}", hint)


def sandbox() -> list[Finding]:
    strength = probing.probe()
    if strength.missing:
        return [findings.warn(SANDBOX, "sandbox_weak", strength.summary(), _SANDBOX_HINT)]
    return [findings.ok(SANDBOX, strength.summary())]


def engines(home: Path, *, hello_seconds: float) -> list[Finding]:
    specs = environments.expected(home)
    return judged([environments.doctor(spec, home, hello_timeout=hello_seconds) for spec in specs])


def judged(found: Sequence[EngineHealth]) -> list[Finding]:
    """Classify a broken engine: one of TVM's may be missing, without its tuners."""
    usable = {health.name for health in found if not health.problems}
    return [_finding(health, one_of_two=bool(usable & set(COMPILERS))) for health in found]


def _finding(health: EngineHealth, *, one_of_two: bool) -> Finding:
    if not health.problems:
        tools = " ".join(f"{name} {version}" for name, version in health.toolchain.items() if name != "engine")
        return findings.ok(ENGINES, f"{health.name}: {tools} (starts in {health.start_seconds or 0:.1f} s)")
    hint = f"Run tunesmith engines install {health.name}; for details, tunesmith engines doctor."
    message = f"{health.name}: {health.problems[0]}"
    if not health.installed and health.name in COMPILERS and one_of_two:
        return findings.warn(ENGINES, "engine_not_installed", message, hint)
    return findings.fail(ENGINES, "engine_broken" if health.installed else "engine_not_installed", message, hint)
