"""Building candidates side by side and measuring them one after the other.

Replaces AutoTVM's LocalBuilder and LocalRunner, which start pools, a tracker and a server for every task and hand over
object files that the serial runner links.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import children, environment

_BATCHES_PER_BUILDER = 2


@dataclass(frozen=True, kw_only=True)
class Options:
    """``domain.jobs.MeasureOptions``; times in seconds unless named otherwise."""

    number: int = 1
    repeat: int = 3
    min_repeat_ms: int = 10
    timeout: float = 10.0
    enable_cpu_cache_flush: bool = False
    n_parallel: int | None = None
    cooldown_interval: float = 0.0

    @classmethod
    def of(cls, options: Json) -> Options:
        return cls(**{name: value for name, value in options.items() if name in cls.__dataclass_fields__})

    @property
    def builders(self) -> int:
        return self.n_parallel or environment.cores()


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One candidate's outcome; ``error`` is a ``domain.records.TrialError`` value."""

    latencies: tuple[float, ...] = ()
    error: str | None = None
    message: str | None = None
    device: str | None = None
    """``HOST:PORT`` of the RPC server that measured it; None is this machine."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """How to build one candidate: a function of ``candidates.FUNCTIONS``, whichever tuner it belongs to.

    It is called with ``arguments`` and then the path of the shared library to write, and returns
    ``(None, shapes and dtypes of the library's arguments)`` or ``(TrialError value, message)``.
    """

    function: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Where and how candidates are measured: what a ``tune`` request says about it."""

    target: str
    threads: int
    options: Options
    runner: Json | None = None
    """As the engine protocol has it; None is this machine."""
    on_device: Callable[[Json], None] = lambda _: None
    """Is told of devices that are not asked any more: the data of ``device`` events."""

    @classmethod
    def of(cls, params: Json, on_device: Callable[[Json], None]) -> Conditions:
        return cls(
            target=params["target"],
            threads=params["threads"],
            options=Options.of(params.get("measure") or {}),
            runner=params.get("runner"),
            on_device=on_device,
        )


class Measurer:
    """Builders and one measuring process, kept for a whole engine session."""

    def __init__(self) -> None:
        self._builders: children.Crew | None = None
        self._builder_count = 0
        self._runner: children.Child | None = None
        self._runner_threads = 0

    def start(self, conditions: Conditions) -> None:
        """Start what is not running yet, without waiting for it."""
        self._start(conditions)

    def batch(self, conditions: Conditions) -> int:
        """Candidates a call of ``measure`` should get, so that builders do not wait for each other."""
        return conditions.options.builders * _BATCHES_PER_BUILDER

    def _start(self, conditions: Conditions) -> tuple[children.Crew, children.Child]:
        size, threads = conditions.options.builders, conditions.threads
        if self._builders is None or self._builder_count != size:
            self.close_builders()
            self._builders = children.Crew(size, environment.settings(1))
            self._builder_count = size
        if self._runner is None or self._runner_threads != threads:
            self.close_runner()
            self._runner = children.Child(environment.settings(threads))
            self._runner_threads = threads
        self._builders.start()
        self._runner.start()
        return self._builders, self._runner

    def measure(self, builds: Sequence[Build], conditions: Conditions, scratch: Path) -> Iterator[Measurement]:
        """Outcomes in the order of ``builds``, each as soon as it is known; nothing is built while one is measured.

        Libraries are built under ``scratch``, whose owner removes what a killed engine leaves behind.
        """
        options = conditions.options
        builders, runner = self._start(conditions)
        with tempfile.TemporaryDirectory(prefix="trials-", dir=scratch) as folder:
            paths = [str(Path(folder) / f"{position}.so") for position in range(len(builds))]
            calls = [(build.function, (*build.arguments, path)) for build, path in zip(builds, paths, strict=True)]
            built = builders.map(calls, options.timeout)
            for path, outcome in zip(paths, built, strict=True):
                failed = _build_failure(outcome)
                yield failed or _run(runner, path, outcome.value[1], options)

    def close_builders(self) -> None:
        if self._builders is not None:
            self._builders.kill()

    def close_runner(self) -> None:
        if self._runner is not None:
            self._runner.kill()

    def close(self) -> None:
        self.close_builders()
        self.close_runner()


def _build_failure(outcome: children.Outcome) -> Measurement | None:
    if isinstance(outcome.error, children.ChildTimedOut):
        return Measurement(error="build_timeout", message="not built in time")
    if outcome.error is not None:
        return Measurement(error="build_error", message=str(outcome.error)[-1000:])
    kind, message = outcome.value
    return Measurement(error=kind, message=message) if kind else None


def _run(runner: children.Child, path: str, shapes: Any, options: Options) -> Measurement:
    flush = options.enable_cpu_cache_flush
    arguments = (path, shapes, options.number, options.repeat, options.min_repeat_ms, flush)
    runner.submit("measure", arguments, options.timeout)
    outcome = runner.fetch()
    time.sleep(options.cooldown_interval)
    if isinstance(outcome.error, children.ChildTimedOut):
        return Measurement(error="run_timeout", message=f"not measured within {options.timeout:g} s")
    if outcome.error is not None:
        return Measurement(error="run_error", message=str(outcome.error)[-1000:])
    return Measurement(latencies=tuple(outcome.value))
