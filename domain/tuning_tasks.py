"""One operator or subgraph that TVM extracted from a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from domain.digests import FileDigest
from domain.jobs import Precision, Tuner, TunerOptions
from domain.release import VERSION
from domain.targets import Target, Toolchain

ENDLESS = 1 << 40
"""The space of a search that composes schedules freely: Ansor's and MetaSchedule's."""


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
    """How often one run of the model executes it."""
    flop: float
    """Floating-point operations of one run."""
    space_size: int
    """Number of schedules in the search space, or ``ENDLESS``."""
    definition: str | None = None
    """Name of the file, beside the extraction, with the workload in its tuner's native form, where the key alone does
    not rebuild it; the text of such files is kept in the ``workloads`` table."""
    alternatives: int | None = None
    """Tasks with the same number are ways to compute the same operators, of which a build uses the fastest; None of
    what has no other way."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How hard a task was searched: a later job that would not search it harder needs no trials for it."""

    trials: float
    """The task's share in the job's budget of trials, or what it was given, whichever is more; infinite when its search
    space has nothing left."""
    seconds: float
    """Likewise, of the seconds."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What is known of a task's key already, of others' searches."""

    trials: int
    """On record."""
    best_latency: float | None
    """Seconds."""
    effort: Effort | None = None
    """The most that any search of it spent that has ended; None when none has."""


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
    effort: Effort | None = None
    """What the search came to spend on the task; None until the job's search has ended."""


_DECIDING_OPTIONS = ("keep_layout", "layout")
"""The fields of ``TunerOptions`` that change what a task is or how large its space is; the rest steer the search."""


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
) -> str:
    """sha256, hex. ``tuner`` is one that an engine has, never ``auto``; ``plugins`` are the engine's own words of them.

    ``model_digest`` is that of the very file that an engine is given; or of the uploaded model, for what is to be found
    before anybody has prepared and rewritten it. ``rewrite`` is the build's parameter of that name.
    A new release of ours may extract differently: it finds nothing that another one stored.
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
    }
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()
