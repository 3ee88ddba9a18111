"""The port behind which the pipeline gets engines, and the real one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from domain.models import ModelFormat
from domain.ports import Engine, OnEvent
from tuner import catalogue, environments
from tuner.inspection import Inspector, Prepared
from tuner.session import EngineSession
from tuner.settings import TunerSettings

REFERENCE = "reference"
COMPILERS = ("relay", "relax")
"""Engines that compile, in the order in which ``auto`` prefers them."""


class EngineSource(Protocol):
    def start(self, name: str, *, log: Path, canceled: Callable[[], bool] | None = None) -> Engine:
        """A fresh engine. Raises EngineNotInstalled, EngineStartFailed, Canceled."""
        ...

    def prepare(self, model: Path, shapes: Mapping[str, Sequence[int]], out: Path, *, log: Path) -> Prepared:
        """Write ``model`` with static shapes to ``out``, whose suffix tells its format.

        Raises InvalidModel, ShapeRequired, ShapeMismatch.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class InstalledEngines:
    """Engines as processes, from the environments under a home folder."""

    home: Path
    settings: TunerSettings

    def start(self, name: str, *, log: Path, canceled: Callable[[], bool] | None = None) -> Engine:
        spec = catalogue.get(name)
        return EngineSession.start(
            spec,
            environments.interpreter(spec, self.home),
            log_path=log,
            hello_timeout=self.settings.engine_hello_seconds,
            silence_timeout=self.settings.engine_silence_seconds,
            home=self.home,
            canceled=canceled,
        )

    def prepare(self, model: Path, shapes: Mapping[str, Sequence[int]], out: Path, *, log: Path) -> Prepared:
        inspector = Inspector.installed(ModelFormat.of(out), self.home, self.settings, log_path=log)
        return inspector.prepare(model, shapes, out)


class EnginePool:
    """The engines of one job: started when first needed, again after they died, all ended together."""

    def __init__(self, source: EngineSource, *, log: Path, canceled: Callable[[], bool]) -> None:
        self._source = source
        self._log = log
        self._canceled = canceled
        self._engines: dict[tuple[str, str], Engine] = {}
        self.listener: OnEvent | None = None
        """Hears every event of every engine, before whoever asked."""

    def get(self, name: str, *, role: str = "main") -> Engine:
        """Engines of different roles are different processes. Raises as ``EngineSource.start``."""
        known = self._engines.get((name, role))
        if known is not None and known.alive:
            return known
        started = Heard(self._source.start(name, log=self._log, canceled=self._canceled), self._hear)
        self._engines[name, role] = started
        return started

    def prepare(self, model: Path, shapes: Mapping[str, Sequence[int]], out: Path) -> Prepared:
        return self._source.prepare(model, shapes, out, log=self._log)

    def close(self, name: str, *, role: str) -> None:
        engine = self._engines.pop((name, role), None)
        if engine is not None:
            engine.close()

    def _hear(self, kind: str, data: dict[str, Any]) -> None:
        if self.listener is not None:
            self.listener(kind, data)

    def close_all(self) -> None:
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()


class Heard:
    """An engine whose events somebody else hears as well."""

    def __init__(self, engine: Engine, listener: OnEvent) -> None:
        self._engine = engine
        self._listener = listener

    @property
    def hello(self) -> dict[str, Any]:
        return self._engine.hello

    @property
    def alive(self) -> bool:
        return self._engine.alive

    def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None,
        on_event: OnEvent | None = None,
        canceled: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        def hear(kind: str, data: dict[str, Any]) -> None:
            self._listener(kind, data)
            if on_event is not None:
                on_event(kind, data)

        return self._engine.request(method, params, timeout=timeout, on_event=hear, canceled=canceled)

    def close(self) -> None:
        self._engine.close()


def replace_folder(partial: Path, final: Path) -> None:
    """Make a finished folder visible under its name at once."""
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
