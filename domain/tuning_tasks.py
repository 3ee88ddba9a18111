"""One operator or subgraph that TVM extracted from a model."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class ExtractedTask:
    """As an engine reports it; position is its index in the engine's extraction order."""

    position: int
    name: str
    """TVM's task name: ``conv2d_NCHWc.x86``."""
    workload_key: str
    description: str
    """For people: ``conv2d 1×3×224×224 ∗ 64×3×7×7 /2``."""
    weight: int
    """How often the model runs it."""
    flop: float
    """Floating-point operations of one run."""
    space_size: int
    """Number of schedules in the search space."""


@dataclass(frozen=True, kw_only=True)
class TuningTask:
    """A job's share in an extracted task."""

    job_id: str
    extracted: ExtractedTask
    trials_planned: int
    trials_done: int = 0
    best_latency: float | None = None
    """Seconds; the best record that this job may use, whoever measured it."""
    failures: dict[str, int] = field(default_factory=dict)
    """``TrialError`` to count."""
