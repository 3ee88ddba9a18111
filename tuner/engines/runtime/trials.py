"""What engines and their measuring processes know of a trial, whichever tuner thought of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tuner.engines.protocol.messages import Json


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """``domain.jobs.MeasureOptions``; times in seconds unless named otherwise."""

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
        return self.n_parallel or len(os.sched_getaffinity(0))


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One candidate's outcome; ``error`` is a ``domain.records.TrialError`` value."""

    latencies: tuple[float, ...] = ()
    error: str | None = None
    message: str | None = None
    device: str | None = None
    """``HOST:PORT`` of the RPC server that measured it; None is this machine."""
    calibration: float | None = None
    """Seconds that the calibration kernel took just before; None where it was not run."""


@dataclass(frozen=True, kw_only=True)
class CandidateBuild:
    """How to build one candidate: a function that the building processes know, whichever tuner it belongs to.

    It is called with ``arguments`` and then the path of the shared library to write, and returns
    ``(None, shapes and dtypes of the library's arguments)`` or ``(TrialError value, message)``.
    """

    function: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Devices behind an RPC tracker: the ``runner`` of a request whose kind is ``rpc``."""

    tracker: str
    """``HOST:PORT``"""
    key: str
    session_timeout: float = 60.0
    avoid: frozenset[str] = field(default=frozenset(), compare=False)
    """``HOST:PORT`` of devices in quarantine; it may be another one with each request."""

    @classmethod
    def of(cls, params: Json) -> Runner | None:
        """None: this machine."""
        runner = params.get("runner") or {}
        if runner.get("kind") != "rpc":
            return None
        known = {name: value for name, value in runner.items() if name in cls.__dataclass_fields__}
        return cls(**{**known, "avoid": frozenset(known.get("avoid", ()))})


@dataclass(frozen=True, kw_only=True)
class MeasureConditions:
    """Where and how candidates are measured: what a ``tune`` request says about it."""

    target: str
    threads: int
    options: MeasureOptions
    workload_key: str = ""
    """Of all candidates: those of another one may be much larger, or smaller, to build."""
    runner: Runner | None = None
    """None is this machine."""
    on_device: Callable[[Json], None] = lambda _: None
    """Is told of devices that are not asked any more: the data of ``device`` events."""

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
