"""Environments of engines: made by uv from hash-pinned files, under ``<home>/engines``.

An environment is named after its engine and the digest of its requirement file, so a release with other pins makes
its own beside the old one, and so do other plugins: packages of the operator's own that a setting names. The marker
file is written last: a half-made environment is made anew.
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
from tuner.host.catalogue import EngineSpec
from tuner.host.session import EngineSession

OnProgress = Callable[[str], None]
"""Called with lines for people."""

PLUGIN_REQUIREMENTS = "TUNESMITH_ENGINE_PLUGIN_REQUIREMENTS"
"""The setting that names a requirement file of plugins; see docs/how-to/custom-operators.md."""
_PLUGGABLE = ("relay", "relax")
_NOT_SOURCE = ("__pycache__", ".*", "build", "dist", "*.egg-info")
"""Of a package's folder, what tools leave there, building it among them: setuptools does so in place."""

_MARKER = ".complete.json"
_TAIL_LINES = 15
_WORTH_SAYING = ("Downloading", "Building", "Prepared", "Installed", " Downloaded")
"""Of uv's lines, what tells a waiting person that it moves."""
_OFFLINE = ("dns error", "failed to fetch", "connection", "timed out", "connect error", "offline", "error sending")


@dataclass(frozen=True, kw_only=True)
class EngineHealth:
    """What ``doctor`` found; ``problems`` is empty when the engine can be used."""

    name: str
    installed: bool = True
    python: Path | None = None
    custom: bool = False
    """Whether a setting names the interpreter."""
    size_bytes: int | None = None
    hello: dict[str, Any] | None = None
    start_seconds: float | None = None
    problems: tuple[str, ...] = ()

    @property
    def toolchain(self) -> dict[str, Any]:
        return dict((self.hello or {}).get("toolchain", {}))


def variable(spec: EngineSpec) -> str:
    """The setting that names another interpreter for the engine."""
    return f"TUNESMITH_ENGINE_{spec.name.upper()}_PYTHON"


def folder(spec: EngineSpec, home: Path) -> Path:
    """Raises EngineNotInstalled when the setting for plugins names no file."""
    content = hashlib.sha256(spec.requirements.read_bytes())
    plugins = plugin_requirements(spec)
    if plugins:
        content.update(plugins.read_bytes())
        for path in _local_packages(plugins):
            content.update(_content(path))
    return home.absolute() / "engines" / f"{spec.name}-{content.hexdigest()[:12]}"


def plugin_requirements(spec: EngineSpec) -> Path | None:
    """The file that names what to install beside the engine's own packages. Raises EngineNotInstalled."""
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
    """The folders and wheels that a requirement file names by their paths, which are relative to its own folder."""
    named = (line.split("#")[0].split(";")[0].strip() for line in requirements.read_text().splitlines())
    paths = [requirements.parent / name for name in named if name and not name.startswith("-")]
    return [path for path in paths if path.exists()]


def _content(path: Path) -> bytes:
    """Changes with any source file: a plugin that was edited is another plugin."""
    content = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and not _is_left_over(file.relative_to(path)):
            content.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return content.digest()


def _is_left_over(path: Path) -> bool:
    return any(fnmatch.fnmatch(part, pattern) for part in path.parts for pattern in _NOT_SOURCE)


def interpreter(spec: EngineSpec, home: Path) -> Path:
    """The Python to run the engine with. Raises EngineNotInstalled."""
    custom = os.environ.get(variable(spec))
    if custom:
        # Not resolved: an interpreter finds its environment beside the link it was called by.
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
            f"the {spec.name} engine is not installed", hint=f"Install it: tunesmith engines install {spec.name}."
        )
    return environment / "bin" / "python"


def install(spec: EngineSpec, home: Path, on_progress: OnProgress | None = None) -> Path:
    """Make the environment unless it is there; returns its interpreter. Safe to call from several processes at once.

    Takes milliseconds when nothing is to be done. An interpreter that a setting names is left as it is.
    Raises EngineInstallFailed, and EngineNotInstalled when the setting names nothing that runs.
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


def doctor(spec: EngineSpec, home: Path, *, hello_timeout: float = 120.0) -> EngineHealth:
    """Start the engine and report; raises nothing that is the engine's fault."""
    health = EngineHealth(name=spec.name, custom=bool(os.environ.get(variable(spec))))
    try:
        python = interpreter(spec, home)
    except errors.EngineNotInstalled as error:
        return replace(health, installed=False, problems=(_told(error),))
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


def _told(error: errors.TunesmithError) -> str:
    return f"{error.message}. {error.hint}" if error.hint else error.message


def _make(spec: EngineSpec, environment: Path, say: OnProgress) -> None:
    say(f"creating the {spec.name} environment in {environment}")
    started = time.monotonic()
    # uv itself refuses to clear a folder that it does not know for an environment.
    shutil.rmtree(environment, ignore_errors=True)
    # In place and not renamed into place: scripts in an environment hold its absolute path.
    _uv(spec, say, "venv", "--python", _base_python(spec), str(environment))
    python = str(environment / "bin" / "python")
    _uv(spec, say, "pip", "sync", "--require-hashes", "--python", python, str(spec.requirements))
    plugins = plugin_requirements(spec)
    if plugins:
        # Nothing that the engine pins is replaced: what plugins need beyond it stands in their file as well.
        arguments = ("pip", "install", "--no-deps", "--reinstall", "--python", python, "-r", str(plugins))
        _uv(spec, say, *arguments, folder=plugins.parent)
    packages = [*_pins(spec.requirements), *(_lines(plugins) if plugins else [])]
    facts = {"engine": spec.name, "packages": packages, "seconds": round(time.monotonic() - started, 1)}
    partial = environment / (_MARKER + ".partial")
    partial.write_text(json.dumps(facts, indent=2) + "\n")
    partial.replace(environment / _MARKER)
    say(f"the {spec.name} environment is ready after {facts['seconds']} s")


def _base_python(spec: EngineSpec) -> str:
    """This interpreter when the version fits, else whatever uv finds on this machine."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    return sys.executable if running == spec.python else spec.python


def _uv(spec: EngineSpec, say: OnProgress, *arguments: str, folder: Path | None = None) -> None:
    """Run uv in ``folder``, passing on what it says; its settings in the environment (index, proxy, cache) hold."""
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
    """uv does not read pip's variables; an index that pip is told to use should serve uv as well."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    if "PIP_INDEX_URL" in environment and not environment.keys() & {"UV_DEFAULT_INDEX", "UV_INDEX_URL"}:
        environment["UV_DEFAULT_INDEX"] = environment["PIP_INDEX_URL"]
    return environment


def _reason(tail: deque[str]) -> str:
    said = [line for line in tail if line.strip()]
    told = [line.strip() for line in said if any(word in line for word in ("error", "×", "Caused by"))]
    return " ".join(told[:3] or said[-1:] or ["uv gave no reason"])


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
