"""Environments of engines, created by uv from hash-pinned requirements under ``<home>/engines``.

The name of an environment consists of the engine and the digest of its requirements, so releases with other pins create
their own, as do plugins: additional packages of the operator. The marker file is written last, so incomplete
environments are recreated.
"""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uv

from domain import errors
from tuner.host import catalogue
from tuner.host.catalogue import ROOT, EngineSpec
from tuner.host.session import EngineSession

OnProgress = Callable[[str], None]
"""Called with progress messages for the user."""

PLUGIN_REQUIREMENTS = "TUNESMITH_ENGINE_PLUGIN_REQUIREMENTS"
"""Setting with a requirement file of plugins; see docs/how-to/custom-operators.md."""
_PLUGGABLE = ("relay", "relax")
_PYTHON = "3.11"
_IGNORED = ("__pycache__", ".*", "build", "dist", "*.egg-info")
"""Files of a package folder that tools create, for example while building it."""

_MARKER = ".complete.json"
_COMPILE_SECONDS = 60.0
_TAIL_LINES = 15
_WORTH_SAYING = ("Downloading", "Building", "Prepared", "Installed", " Downloaded")
"""Lines of uv that show progress."""
_OFFLINE = ("dns error", "failed to fetch", "connection", "timed out", "connect error", "offline", "error sending")


@dataclass(frozen=True, kw_only=True)
class EngineHealth:
    """Result of ``doctor``; ``problems`` is empty for a usable engine."""

    name: str
    installed: bool = True
    python: Path | None = None
    custom: bool = False
    """Whether the interpreter is set by a setting."""
    size_bytes: int | None = None
    hello: dict[str, Any] | None = None
    start_seconds: float | None = None
    problems: tuple[str, ...] = ()

    @property
    def toolchain(self) -> dict[str, Any]:
        return dict((self.hello or {}).get("toolchain", {}))


def variable(spec: EngineSpec) -> str:
    """Return the setting for the engine's interpreter."""
    return f"TUNESMITH_ENGINE_{spec.environment.upper()}_PYTHON"


def folder(spec: EngineSpec, home: Path) -> Path:
    """Return the environment's folder. Raises EngineNotInstalled if the setting for plugins names no file."""
    content = hashlib.sha256(spec.requirements.read_bytes())
    plugins = plugin_requirements(spec)
    if plugins:
        content.update(plugins.read_bytes())
        for path in _local_packages(plugins):
            content.update(_content(path))
    return home.absolute() / "engines" / f"{spec.environment}-{content.hexdigest()[:12]}"


def plugin_requirements(spec: EngineSpec) -> Path | None:
    """Return the file of additional requirements. Raises EngineNotInstalled."""
    named = os.environ.get(PLUGIN_REQUIREMENTS)
    if not named or spec.name not in _PLUGGABLE:
        return None
    path = Path(named).expanduser().absolute()
    if not path.is_file():
        raise errors.EngineNotInstalled(
            f"{PLUGIN_REQUIREMENTS} names {path}, which is not a file",
            hint="Set it to the plugins' requirement file, or unset it.",
        )
    return path


def _local_packages(requirements: Path) -> list[Path]:
    """Return the folders and wheels that a requirement file names by path, relative to its own folder."""
    named = (line.split("#")[0].split(";")[0].strip() for line in requirements.read_text().splitlines())
    paths = [requirements.parent / name for name in named if name and not name.startswith("-")]
    return [path for path in paths if path.exists()]


def _content(path: Path) -> bytes:
    """Return a digest of the source files, so that an edited plugin gets a new environment."""
    content = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and not _is_left_over(file.relative_to(path)):
            content.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return content.digest()


def _is_left_over(path: Path) -> bool:
    return any(fnmatch.fnmatch(part, pattern) for part in path.parts for pattern in _IGNORED)


def interpreter(spec: EngineSpec, home: Path) -> Path:
    """Return the Python of the engine. Raises EngineNotInstalled."""
    custom = os.environ.get(variable(spec))
    if custom:
        # Not resolved: an interpreter finds its environment by the path of the link.
        path = Path(custom).expanduser().absolute()
        if not os.access(path, os.X_OK):
            raise errors.EngineNotInstalled(
                f"{variable(spec)} names {path}, which is not executable",
                hint="Set it to a Python interpreter, or unset it.",
            )
        return path
    environment = folder(spec, home)
    if not (environment / _MARKER).is_file():
        raise errors.EngineNotInstalled(
            f"the {spec.environment} engine is not installed",
            hint=f"Install it: tunesmith engines install {spec.environment}.",
        )
    return environment / "bin" / "python"


def expected(home: Path) -> list[EngineSpec]:
    """Return the engines that should work on this host, by name: all but the optional ones that are not installed."""
    found = catalogue.ENGINES | {
        name: spec
        for name, spec in catalogue.OPTIONAL.items()
        if os.environ.get(variable(spec)) or (folder(spec, home) / _MARKER).is_file()
    }
    return [found[name] for name in sorted(found)]


def install(spec: EngineSpec, home: Path, on_progress: OnProgress | None = None) -> Path:
    """Create the environment unless it exists, and return its interpreter; safe for concurrent processes.

    An existing environment takes milliseconds. An interpreter of a setting is not changed. Raises EngineInstallFailed,
    and EngineNotInstalled if the setting's interpreter does not work.
    """
    with contextlib.suppress(errors.EngineNotInstalled):
        return interpreter(spec, home)
    if os.environ.get(variable(spec)):
        return interpreter(spec, home)
    environment = folder(spec, home)
    say = on_progress or (lambda _: None)
    with _locked(environment.with_name(environment.name + ".lock"), say):
        if not (environment / _MARKER).is_file():
            _make(spec, environment, say)
    return interpreter(spec, home)


def cache_bytecode(python: Path) -> None:
    """Compile the changed modules of the engines' programs with an engine's interpreter. Engines cannot write bytecode,
    and without it they start later; no error is raised."""
    command = [str(python), "-m", "compileall", "-q", str(ROOT / "tuner" / "engines")]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, cwd=ROOT, capture_output=True, timeout=_COMPILE_SECONDS, check=False)


def doctor(spec: EngineSpec, home: Path, *, hello_timeout: float = 120.0) -> EngineHealth:
    """Start the engine and report its state; errors of the engine are reported, not raised."""
    health = EngineHealth(name=spec.name, custom=bool(os.environ.get(variable(spec))))
    try:
        python = interpreter(spec, home)
    except errors.EngineNotInstalled as error:
        return replace(health, installed=False, problems=(_one_line(error),))
    health = replace(health, python=python, size_bytes=None if health.custom else _size(folder(spec, home)))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tunesmith-doctor-") as scratch:
        try:
            log = Path(scratch) / "engine.log"
            with EngineSession.start(spec, python, log_path=log, hello_timeout=hello_timeout, home=home) as session:
                hello, seconds = session.hello, time.monotonic() - started
        except errors.EngineError as error:
            tail = str(error.details.get("log_tail", "")).strip().splitlines()[-3:]
            return replace(health, problems=(error.message, *tail))
    named = hello.get("engine")
    problems = () if named == spec.name else (f"{python} runs the engine {named!r}",)
    return replace(health, hello=hello, start_seconds=seconds, problems=problems)


def _one_line(error: errors.TunesmithError) -> str:
    return f"{error.message}. {error.hint}" if error.hint else error.message


def _make(spec: EngineSpec, environment: Path, say: OnProgress) -> None:
    say(f"creating the {spec.name} environment in {environment}")
    started = time.monotonic()
    # uv refuses to clear a folder that is not an environment.
    shutil.rmtree(environment, ignore_errors=True)
    # Created in place instead of renamed, as scripts in an environment contain its absolute path.
    _uv(spec, say, "venv", "--python", _base_python(), str(environment))
    python = str(environment / "bin" / "python")
    # Sandboxed engines cannot write bytecode; without it, importing TVM takes 3.4 s instead of 1.3 s.
    cached = "--compile-bytecode"
    _uv(spec, say, "pip", "sync", cached, "--require-hashes", "--python", python, str(spec.requirements))
    plugins = plugin_requirements(spec)
    if plugins:
        # Packages pinned by the engine are not replaced; additional requirements of plugins must be in their file.
        arguments = ("pip", "install", cached, "--no-deps", "--reinstall", "--python", python, "-r", str(plugins))
        _uv(spec, say, *arguments, folder=plugins.parent)
    packages = [*_pins(spec.requirements), *(_lines(plugins) if plugins else [])]
    facts = {"engine": spec.name, "packages": packages, "seconds": round(time.monotonic() - started, 1)}
    partial = environment / (_MARKER + ".partial")
    partial.write_text(json.dumps(facts, indent=2) + "\n")
    partial.replace(environment / _MARKER)
    cache_bytecode(Path(python))
    say(f"the {spec.name} environment is ready after {facts['seconds']} s")


def _base_python() -> str:
    """Return this interpreter if its version is suitable, else one that uv finds."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    return sys.executable if running == _PYTHON else _PYTHON


def _uv(spec: EngineSpec, say: OnProgress, *arguments: str, folder: Path | None = None) -> None:
    """Run uv in ``folder`` and report its progress; its environment variables (index, proxy, cache) apply."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with subprocess.Popen(
        [uv.find_uv_bin(), *arguments],
        cwd=folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None  # noqa: S101 - asked for above
        for line in process.stdout:
            tail.append(line.rstrip())
            if line.startswith(_WORTH_SAYING):
                say(f"  {line.strip()}")
    if process.returncode != 0:
        text = "\n".join(tail)
        raise errors.EngineInstallFailed(
            f"the {spec.name} engine could not be installed: {_reason(tail)}",
            hint=_hint(text),
            details={"command": ["uv", *arguments], "output": text},
        )


def _environment() -> dict[str, str]:
    """Translate pip's variables, which uv ignores: an index configured for pip should serve uv, too."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    if "PIP_INDEX_URL" in environment and not environment.keys() & {"UV_DEFAULT_INDEX", "UV_INDEX_URL"}:
        environment["UV_DEFAULT_INDEX"] = environment["PIP_INDEX_URL"]
    return environment


def _reason(tail: deque[str]) -> str:
    lines = [line for line in tail if line.strip()]
    reasons = [line.strip() for line in lines if any(word in line for word in ("error", "×", "Caused by"))]
    return " ".join(reasons[:3] or lines[-1:] or ["uv gave no reason"])


def _hint(text: str) -> str:
    if any(word in text.lower() for word in _OFFLINE):
        return (
            "Check that a Python package index is reachable. UV_DEFAULT_INDEX sets another index, HTTPS_PROXY a proxy."
        )
    if "No space left" in text or "os error 28" in text:
        return "The disk is full: an engine environment takes about 600 MB."
    return "details.output has uv's output. To continue, run the same command again."


@contextlib.contextmanager
def _locked(path: Path, say: OnProgress) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is creating this environment; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _pins(requirements: Path) -> list[str]:
    return [line.split()[0] for line in requirements.read_text().splitlines() if "==" in line.split("#")[0]]


def _lines(requirements: Path) -> list[str]:
    return [line.strip() for line in requirements.read_text().splitlines() if line.split("#")[0].strip()]


def _size(environment: Path) -> int:
    return sum(path.lstat().st_size for path in environment.rglob("*") if not path.is_symlink())
