"""Data types of a trial shared by engines and their measuring processes, independent of the tuner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import environment


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """Engine-side ``domain.jobs.MeasureOptions``; times in seconds unless the name says otherwise."""

    number: int = 1
    repeat: int = 3
    min_repeat_ms: int = 10
    timeout: float = 10.0
    enable_cpu_cache_flush: bool = False
    n_parallel: int | None = None
    cooldown_interval: float = 0.0

    @classmethod
    def of(cls, options: Json) -> MeasureOptions:
        return cls(**{name: value for name, value in options.items() if name in cls.__dataclass_fields__})

    @property
    def builders(self) -> int:
        return self.n_parallel or environment.cores()


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Outcome of measuring one candidate; ``error`` is a ``domain.records.TrialError`` value."""

    latencies: tuple[float, ...] = ()
    error: str | None = None
    message: str | None = None
    device: str | None = None
    """``HOST:PORT`` of the RPC server that measured it; None for this machine."""
    calibration: float | None = None
    """Seconds of the calibration kernel just before; None if it was not run."""


@dataclass(frozen=True, kw_only=True)
class CandidateBuild:
    """How to build one candidate: a function in the builders' ``FUNCTIONS``, and its arguments.

    The function is called with ``arguments`` followed by the path of the shared library to write. It returns ``(None,
    shapes and dtypes of the library's arguments)`` or ``(TrialError value, message)``.
    """

    function: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Devices behind an RPC tracker: the ``runner`` of a request with kind ``rpc``."""

    tracker: str
    """``HOST:PORT`` of the tracker."""
    key: str
    session_timeout: float = 60.0
    avoid: frozenset[str] = field(default=frozenset(), compare=False)
    """``HOST:PORT`` of quarantined devices; may change with each request."""

    @classmethod
    def of(cls, params: Json) -> Runner | None:
        """Return the runner of a request; None for this machine."""
        runner = params.get("runner") or {}
        if runner.get("kind") != "rpc":
            return None
        known = {name: value for name, value in runner.items() if name in cls.__dataclass_fields__}
        return cls(**{**known, "avoid": frozenset(known.get("avoid", ()))})


@dataclass(frozen=True, kw_only=True)
class MeasureConditions:
    """Where and how candidates are measured, as given by a ``tune`` request."""

    target: str
    threads: int
    options: MeasureOptions
    workload_key: str = ""
    """Workload of all candidates; builds of another workload may take much longer or shorter."""
    runner: Runner | None = None
    """None for this machine."""
    on_device: Callable[[Json], None] = lambda _: None
    """Called with the data of a ``device`` event when a device is no longer used."""

    @classmethod
    def of(cls, params: Json, on_device: Callable[[Json], None]) -> MeasureConditions:
        return cls(
            target=params["target"],
            threads=params["threads"],
            options=MeasureOptions.of(params.get("measure") or {}),
            workload_key=params.get("workload_key") or "",
            runner=Runner.of(params),
            on_device=on_device,
        )
