"""Tuning tasks: operators and subgraphs that TVM extracts from a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from domain import errors
from domain.digests import FileDigest
from domain.jobs import Precision, Tuner, TunerOptions
from domain.release import VERSION
from domain.targets import Target, Toolchain

ENDLESS = 1 << 40
"""Size of unlimited search spaces: those of Ansor and MetaSchedule."""


@dataclass(frozen=True, kw_only=True)
class ExtractedTask:
    """A task as an engine extracts it; ``position`` is its index in extraction order."""

    position: int
    name: str
    """TVM's task name: ``conv2d_NCHWc.x86``."""
    workload_key: str
    description: str
    """Readable description: ``conv2d 1×3×224×224 ∗ 64×3×7×7 /2``."""
    weight: int
    """Number of executions in one run of the model."""
    flop: float
    """Floating-point operations of one run."""
    space_size: int
    """Number of schedules in the search space, or ``ENDLESS``."""
    definition: str | None = None
    """Name of the file with the workload in native form, if the key is not enough to rebuild it; its text is
    stored in the ``workloads`` table."""
    alternatives: int | None = None
    """Tasks with the same number are alternatives for the same operators, of which a build uses the fastest;
    None without alternatives."""

    def __post_init__(self) -> None:
        """Raise EngineGarbled for a definition outside of the engine's folder: the host would read that file."""
        if self.definition is not None and ("/" in self.definition or self.definition in ("", ".", "..")):
            raise errors.EngineGarbled(
                f"the engine named the file {self.definition[:200]!r}, which is not in its folder"
            )


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Effort of a search: a later job that would not spend more needs no trials for the task."""

    trials: float
    """The task's share of the trial budget, or the trials spent, whichever is larger; infinite for an
    exhausted search space."""
    seconds: float
    """Likewise for seconds."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Results of earlier searches for a task's key."""

    trials: int
    """Number of stored trials."""
    best_latency: float | None
    """Seconds."""
    effort: Effort | None = None
    """Largest effort of any completed search; None without one."""


@dataclass(frozen=True, kw_only=True)
class TuningTask:
    """An extracted task of a job, with its plan and progress."""

    job_id: str
    extracted: ExtractedTask
    trials_planned: int
    trials_done: int = 0
    best_latency: float | None = None
    """Seconds; the best record that this job may use, of any job."""
    failures: dict[str, int] = field(default_factory=dict)
    """``TrialError`` to count."""
    effort: Effort | None = None
    """What the completed search spent on the task; None before that."""


_DECIDING_OPTIONS = ("keep_layout", "layout")
"""Fields of ``TunerOptions`` that change a task or its search space; others only guide the search."""


def key_of(
    *,
    model_digest: FileDigest,
    input_shapes: Mapping[str, Sequence[int]],
    target: Target,
    toolchain: Toolchain,
    tuner: Tuner,
    precision: Precision,
    rewrite: bool,
    options: TunerOptions,
    plugins: Sequence[str] = (),
    beside: Tuner | None = None,
) -> str:
    """Return the key of extracted tasks, a sha256 in hex. ``tuner`` is never ``auto``; ``plugins`` are the engine's
    descriptions. ``beside`` is as in ``Strategy``; which records its build had is not part of the key.

    ``model_digest`` is the digest of the engine's input file, or of the uploaded model for lookups before the model is
    prepared and rewritten. ``rewrite`` is the parameter of the build.

    A new release may extract differently, so keys include the release.
    """
    deciding = {
        "release": VERSION,
        "model": model_digest,
        "shapes": {name: list(shape) for name, shape in input_shapes.items()},
        "target": target.identity,
        "toolchain": toolchain.identity,
        "tuner": tuner.value,
        "precision": precision.value,
        "rewrite": rewrite,
        "options": {name: getattr(options, name) for name in _DECIDING_OPTIONS},
        "plugins": sorted(plugins),
        "beside": beside,
    }
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()
