"""The port through which the pipeline starts engines, and its real implementation."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from domain import errors
from domain.models import ModelFormat
from domain.ports import Engine, OnEvent
from storage.blobs import stores
from storage.settings import StorageSettings
from tuner.engines.protocol import plugins
from tuner.host import catalogue, environments, failures, hardware
from tuner.host.inspection import Inspector, Prepared
from tuner.host.session import EngineSession
from tuner.host.settings import TunerSettings
from tuner.sandbox import limits
from worker import observing, paths
from worker.total_limit import TotalLimit

ONNX = "onnx"
COMPILERS = ("relay", "relax")
"""Engines that compile, in the order in which ``auto`` prefers them."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How an engine process is started."""

    log: Path
    """File for its output."""
    folder: Path | None = None
    """The only folder of job files that it can read, and the only one that it can write."""
    canceled: Callable[[], bool] | None = None
    """Whether to give up; polled while it starts."""
    network: bool = False
    """Whether it may connect to other hosts."""


class EngineSource(Protocol):
    def start(self, name: str, given: EngineOptions) -> Engine:
        """Start an engine. Raises EngineNotInstalled, EngineStartFailed, Canceled."""
        ...

    def cache_bytecode(self, name: str) -> None:
        """Make the next starts of an engine quick. Raises EngineNotInstalled."""
        ...

    def prepare(
        self,
        model: Path,
        shapes: Mapping[str, Sequence[int]],
        out: Path,
        *,
        log: Path,
        canceled: Callable[[], bool] | None = None,
    ) -> Prepared:
        """Write ``model`` with static shapes to ``out``, whose suffix gives its format.

        Raises InvalidModel, ShapeRequired, ShapeMismatch, Canceled.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class InstalledEngines:
    """Engines as processes, from the environments under a home folder."""

    home: Path
    settings: TunerSettings

    def start(self, name: str, given: EngineOptions) -> Engine:
        own = () if given.folder is None else (str(given.folder.absolute()),)
        spec = catalogue.get(name)
        return EngineSession.start(
            spec,
            environments.interpreter(spec, self.home),
            log_path=given.log,
            hello_timeout=self.settings.engine_hello_seconds,
            silence_timeout=self.settings.engine_silence_seconds,
            home=self.home,
            limits=replace(
                self.settings.engine_limits(network=given.network), hidden=self._hidden(), shown=own, writable=own
            ),
            canceled=given.canceled,
        )

    def cache_bytecode(self, name: str) -> None:
        environments.cache_bytecode(environments.interpreter(catalogue.get(name), self.home))

    def prepare(
        self,
        model: Path,
        shapes: Mapping[str, Sequence[int]],
        out: Path,
        *,
        log: Path,
        canceled: Callable[[], bool] | None = None,
    ) -> Prepared:
        inspector = Inspector.installed(
            ModelFormat.of(out), self.home, self.settings, log_path=log, hidden=self._hidden(), canceled=canceled
        )
        return inspector.prepare(model, shapes, out)

    def _hidden(self) -> tuple[str, ...]:
        """Models and bundles of everybody: the engines of a job read what lies in its own folder."""
        return limits.hideable(stores.folder(StorageSettings(home=self.home)), self.home)


MAIN = "main"
"""The usual role of a process."""


class EnginePool:
    """The engines of one job: started when first needed, restarted after they died, ended together."""

    def __init__(
        self,
        source: EngineSource,
        *,
        log: Path,
        folder: Path,
        canceled: Callable[[], bool],
        network: bool = False,
    ) -> None:
        """``folder``: the job's files, all that its engines can read and write. ``network``: whether compilers measure
        on other hosts."""
        self._source = source
        self._folder = folder
        self._network = network
        self._log = log
        self.canceled = canceled
        """Polled during requests that have no such function of their own."""
        self._engines: dict[tuple[str, str], Engine] = {}
        self.listener: Callable[[str, str, dict[str, Any]], None] | None = None
        """Receives the engine's name and every event of every engine, before the caller of the request."""
        self.limit = TotalLimit()
        """The job's total limit, which every request keeps."""
        self.memory_bytes: int | None = None
        """Memory limit of each process in the current stage; None for the setting's."""

    def get(self, name: str, *, role: str = MAIN) -> Engine:
        """Each role has a process of its own. Raises like ``EngineSource.start``."""
        known = self._engines.get((name, role))
        if known is not None and known.alive:
            return known
        given = EngineOptions(
            log=self._log,
            folder=self._folder,
            canceled=self.canceled,
            network=self._network and name in COMPILERS,
        )
        with observing.engine_starting(name, again=known is not None):
            # An engine cannot use a folder that is created after it has started.
            self._folder.mkdir(parents=True, exist_ok=True)
            fresh = self._source.start(name, given)
        observing.engine_started(name, fresh.pid)
        started = _ObservedEngine(name, fresh, self)
        self._engines[name, role] = started
        return started

    def prepare(self, model: Path, shapes: Mapping[str, Sequence[int]], out: Path) -> Prepared:
        return self._source.prepare(model, shapes, out, log=self._log, canceled=self.canceled)

    def is_alive(self, name: str, *, role: str) -> bool:
        known = self._engines.get((name, role))
        return known is not None and known.alive

    def change_role(self, name: str, role: str, to: str) -> None:
        """Give the process of a role another one, whose process must have been closed."""
        self._engines[name, to] = self._engines.pop((name, role))

    def close(self, name: str, *, role: str) -> None:
        engine = self._engines.pop((name, role), None)
        if engine is not None:
            engine.close()

    def close_all(self) -> None:
        """End all engines at the same time: each may take a second to exit, and a cancellation waits for all."""
        engines = list(self._engines.values())
        self._engines.clear()
        if engines:
            with ThreadPoolExecutor(len(engines)) as executor:
                for closing in [executor.submit(engine.close) for engine in engines]:
                    closing.result()


class _ObservedEngine:
    """An engine of a job: its events also go to the listener, and every request ends with the job and its limit."""

    def __init__(self, name: str, engine: Engine, pool: EnginePool) -> None:
        self._name = name
        self._engine = engine
        self._pool = pool

    @property
    def hello(self) -> dict[str, Any]:
        return self._engine.hello

    @property
    def alive(self) -> bool:
        return self._engine.alive

    @property
    def pid(self) -> int | None:
        return self._engine.pid

    def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None,
        on_event: OnEvent | None = None,
        canceled: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        """As ``domain.ports.Engine.request``; also raises TimeLimit, and EngineOutOfMemory, which ends the engine."""

        def hear(kind: str, data: dict[str, Any]) -> None:
            if self._pool.listener is not None:
                self._pool.listener(self._name, kind, data)
            if on_event is not None:
                on_event(kind, data)

        limit, memory = self._pool.limit, self._pool.memory_bytes
        shortened = limit.shortened(timeout)
        canceled = canceled or self._pool.canceled
        self._engine.limit_memory(memory)
        with observing.engine_asked(self._name, self.pid, method):
            try:
                return self._engine.request(method, params, timeout=shortened, on_event=hear, canceled=canceled)
            except errors.EngineTimeout as error:
                if shortened == timeout:
                    raise
                raise limit.error(f"{method!r} of the {self._name} engine was stopped") from error
            except (errors.EngineRequestFailed, errors.EngineCrashed) as error:
                if not failures.needs_memory(error):
                    raise
                # What it still holds would be missing for the next request.
                self._engine.close()
                allowed = "" if memory is None else f" than the {memory / 1024**2:,.0f} MiB that {limit.stage} may use"
                message = f"{method!r} of the {self._name} engine needs more memory{allowed}: {error.message[:300]}"
                raise errors.EngineOutOfMemory(message, details={**error.details, "limit_bytes": memory}) from error

    def limit_memory(self, data_bytes: int | None) -> None:
        self._engine.limit_memory(data_bytes)

    def close(self) -> None:
        self._engine.close()


def replace_folder(partial: Path, final: Path) -> None:
    """Make a finished folder visible under its name at once."""
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)


_log = logging.getLogger(__name__)


def ask_hello(name: str, home: Path, engines: EngineSource) -> dict[str, Any] | None:
    """Return the engine's hello; None, and a log line, if it does not start.

    For describing the worker; a job asks the engine that it runs on.
    """
    try:
        cached = paths.hello_cache(home) / f"{name}-{_key(name, home)}.json"
        known = _known(cached)
        if known is not None:
            return known
        engines.cache_bytecode(name)
        engine = engines.start(name, EngineOptions(log=home / "logs" / "engines.log"))
        hello = engine.hello
        engine.close()
        _keep(cached, hello)
    except errors.EngineError as error:
        _log.warning("the %s engine cannot be used: %s", name, error.message)
        return None
    return hello


def _known(cached: Path) -> dict[str, Any] | None:
    """Return the stored hello; None without one, or if a power failure has left an empty file."""
    try:
        hello: dict[str, Any] = json.loads(cached.read_text())
    except (OSError, ValueError):
        return None
    return hello


def _keep(cached: Path, hello: dict[str, Any]) -> None:
    """Store the hello, for quicker starts alone: a failure does no harm."""
    # Several workers of this home may start at the same time.
    partial = cached.with_suffix(f".{os.getpid()}.partial")
    with contextlib.suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(hello))
        partial.replace(cached)


def _key(name: str, home: Path) -> str:
    """A fingerprint of the environment, the plugins, the engines' code and the machine."""
    spec = catalogue.get(name)
    python = environments.interpreter(spec, home)
    packages = python.parent.parent / "lib"
    changed = [path.stat().st_mtime_ns for path in [python, *sorted(packages.glob("*/site-packages"))] if path.exists()]
    code = max(path.stat().st_mtime_ns for path in (catalogue.ROOT / "tuner" / "engines").rglob("*.py"))
    facts = [str(python), os.environ.get(plugins.VARIABLE), *changed, code, hardware.device().key]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
