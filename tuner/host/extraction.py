"""Requests to engines without a job: whether a model can be imported, and its tuning tasks."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from domain import errors
from domain.jobs import Precision, Tuner, TunerOptions
from domain.models import ModelFormat
from domain.ports import Engine
from domain.targets import Target
from domain.tuning_tasks import ExtractedTask
from tuner.host import catalogue, environments, failures
from tuner.host.inspection import Inspector, Prepared, Rewritten
from tuner.host.session import EngineSession, Limits
from tuner.host.settings import TunerSettings

_FILE_BYTES = 4 * 1024**3

Canceled = Callable[[], bool]


class Planner(Protocol):
    """The engines of a machine, for making plans."""

    def prepare(
        self, model: Path, shapes: Mapping[str, Sequence[int]], out: Path, canceled: Canceled | None = None
    ) -> Prepared:
        """Write ``model`` with static shapes in the format of the suffix of ``out``.

        Raises EngineNotInstalled, InvalidModel, ShapeRequired, ShapeMismatch, Canceled.
        """
        ...

    def rewrite(self, prepared: Path, lanes: int, out: Path, canceled: Canceled | None = None) -> Rewritten:
        """Rewrite a prepared model for vectors of ``lanes`` 32-bit lanes. Raises as ``prepare``."""
        ...

    def start(self, name: str, folder: Path, canceled: Canceled) -> Engine:
        """Start an engine that may write in ``folder``. Raises EngineNotInstalled, EngineStartFailed, Canceled."""
        ...

    @property
    def seconds(self) -> float:
        """Time limit of a plan."""
        ...


@dataclass(frozen=True, kw_only=True)
class InstalledPlanner:
    """Engines in processes with limits, from the environments of a home folder."""

    home: Path
    settings: TunerSettings
    hidden: tuple[str, ...] = ()
    """Folders hidden from engines, except for the model of the request."""

    @property
    def seconds(self) -> float:
        return self.settings.plan_seconds

    def prepare(
        self, model: Path, shapes: Mapping[str, Sequence[int]], out: Path, canceled: Canceled | None = None
    ) -> Prepared:
        return self._inspector(out, canceled).prepare(model, shapes, out)

    def rewrite(self, prepared: Path, lanes: int, out: Path, canceled: Canceled | None = None) -> Rewritten:
        return self._inspector(prepared, canceled).rewrite(prepared, lanes, out)

    def _inspector(self, model: Path, canceled: Canceled | None) -> Inspector:
        return Inspector.installed(
            ModelFormat.of(model), self.home, self.settings, hidden=self.hidden, canceled=canceled
        )

    def start(self, name: str, folder: Path, canceled: Canceled) -> Engine:
        spec = catalogue.get(name)
        log = self.home / "logs" / "plans.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        return EngineSession.start(
            spec,
            environments.interpreter(spec, self.home),
            log_path=log,
            hello_timeout=self.settings.engine_hello_seconds,
            silence_timeout=self.settings.engine_silence_seconds,
            home=self.home,
            limits=Limits(
                memory_bytes=self.settings.plan_memory_mb * 1024**2,
                # CPU time of a process includes all of its threads.
                cpu_seconds=int(self.settings.plan_seconds * 8),
                file_bytes=_FILE_BYTES,
                offline=True,
                hidden=self.hidden,
                writable=(str(folder.absolute()),),
            ),
            canceled=canceled,
        )


class Questions:
    """Requests to one running engine with a common time limit. Errors caused by the caller are raised as the
    caller's."""

    def __init__(self, engine: Engine, *, folder: Path, seconds: float, canceled: Canceled) -> None:
        """``folder``: where the engine may write."""
        self._engine = engine
        self._folder = folder
        self._deadline = time.monotonic() + seconds
        self._canceled = canceled

    @property
    def hello(self) -> dict[str, Any]:
        return self._engine.hello

    def check(self, model: Path, target: Target | None = None) -> int | None:
        """Check that the engine imports the model, and return the 32-bit lanes of the target's vectors, if it has any.

        Raises UnsupportedOperators, InvalidModel, EngineError, Canceled.
        """
        place = {} if target is None else {"target": target.text, "threads": target.threads}
        lanes: int | None = self._ask("check", {"model": str(model), **place}).get("lanes")
        return lanes

    def extract(
        self, model: Path, target: Target, tuner: Tuner, *, precision: Precision, rewrite: bool, options: TunerOptions
    ) -> tuple[list[ExtractedTask], dict[str, str]]:
        """Extract the tuning tasks of a prepared model.

        ``rewrite``: whether the engine may change the computation beyond single operators. Also returns workloads in
        native form by workload key, if the key is not enough to rebuild them. Raises UnknownTarget, UnsupportedTarget,
        InvalidOption, and as ``check``.
        """
        params = {
            "model": str(model),
            "target": target.text,
            "threads": target.threads,
            "precision": precision.value,
            "rewrite": rewrite,
            "tuner": tuner.value,
            "options": asdict(options),
        }
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            answer = self._ask("extract", {**params, "out_dir": folder})
            tasks = [ExtractedTask(**task) for task in answer["tasks"]]
            definitions = {
                task.workload_key: (Path(folder) / task.definition).read_text() for task in tasks if task.definition
            }
        return tasks, definitions

    def _ask(self, method: str, given: dict[str, Any]) -> dict[str, Any]:
        left = max(0.1, self._deadline - time.monotonic())
        try:
            return self._engine.request(method, given, timeout=left, canceled=self._canceled)
        except errors.EngineRequestFailed as error:
            raise failures.explain(error) from error


@contextmanager
def questions(planner: Planner, name: str, canceled: Canceled, *, seconds: float | None = None) -> Iterator[Questions]:
    """Start an engine for requests, and end it afterwards. Raises as ``Planner.start``.

    ``seconds`` is the time limit of the requests, by default that of a plan.
    """
    limit = planner.seconds if seconds is None else seconds
    with tempfile.TemporaryDirectory(prefix="tunesmith-plan-") as folder:
        engine = planner.start(name, Path(folder), canceled)
        try:
            yield Questions(engine, folder=Path(folder), seconds=limit, canceled=canceled)
        finally:
            engine.close()
