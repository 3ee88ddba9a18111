"""One tuning request and its whole life."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from domain import errors
from domain.targets import NATIVE, Device, Target, Toolchain


class JobState(StrEnum):
    QUEUED = "queued"  # waits for a worker
    RUNNING = "running"  # a worker holds its lease
    CANCELING = "canceling"  # asked to stop; the worker has not confirmed yet
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def is_final(self) -> bool:
        return self in FINAL_STATES


FINAL_STATES = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELED})


class Stage(StrEnum):
    IMPORT = "import"
    BASELINE = "baseline"
    PLAN = "plan"
    TUNE = "tune"
    COMPILE = "compile"
    VERIFY = "verify"
    BENCHMARK = "benchmark"
    PUBLISH = "publish"


class Tuner(StrEnum):
    AUTO = "auto"  # the service picks
    AUTOTVM = "autotvm"


class RunnerKind(StrEnum):
    LOCAL = "local"


class Precision(StrEnum):
    F32 = "f32"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What tuning may cost; the first limit reached ends it with the best found so far."""

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.trials is None and self.seconds is None:
            raise errors.InvalidBudget("a budget needs trials, seconds, or both")
        if self.trials is not None and self.trials <= 0:
            raise errors.InvalidBudget(f"a budget of {self.trials} trials buys nothing")
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise errors.InvalidBudget(f"a budget of {self.seconds} seconds buys nothing")


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """How a trial is measured; names and meaning as in ``tvm.autotvm.LocalBuilder`` and ``LocalRunner``."""

    number: int = 1
    """Runs per repeat, raised until a repeat lasts ``min_repeat_ms``."""
    repeat: int = 3
    min_repeat_ms: int = 10
    timeout: float = 10.0
    """Seconds that building, and again measuring, one trial may take."""
    enable_cpu_cache_flush: bool = False
    n_parallel: int | None = None
    """Builders at once; None means one per core."""


@dataclass(frozen=True, kw_only=True)
class TunerOptions:
    """Options of ``tvm.autotvm.tuner.XGBTuner`` that matter, and one of ours; None keeps what suits the target."""

    early_stopping: int | None = None
    """Trials of one tuning task without a better one before it is left."""
    n_trial: int | None = None
    """Most trials for one tuning task."""
    loss_type: str = "rank-binary"
    """``reg`` or ``rank-binary``; TVM's ``rank`` does not run on XGBoost 2 and later."""
    feature_type: str = "knob"
    keep_layout: bool = True
    """Search only schedules that keep the memory layout of the untuned build; else those, then any."""


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    model_digest: str
    budget: Budget
    target: str = NATIVE
    threads: int | None = None
    """Threads the tuned model will run with; None means every core of the device."""
    tuner: Tuner = Tuner.AUTO
    runner: RunnerKind = RunnerKind.LOCAL
    precision: Precision = Precision.F32
    input_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    measure: MeasureOptions = field(default_factory=MeasureOptions)
    tuner_options: TunerOptions = field(default_factory=TunerOptions)
    priority: int = 5
    """0 (first) to 9 (last)."""
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a job failed, in machine-readable words."""

    code: str
    message: str
    hint: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What a worker resolved a request to: where the job compiles for, measures and with which tools."""

    target: Target
    device: Device
    toolchain: Toolchain


@dataclass(frozen=True, kw_only=True)
class Lease:
    worker_id: str
    attempt: int
    """Counts claims. Every write of a worker carries its attempt, so one that lost its lease writes nothing."""
    expires_at: datetime


@dataclass(frozen=True, kw_only=True)
class Job:
    id: str
    request: JobRequest
    state: JobState
    stage: Stage | None
    """The stage at work, or the last one reached."""
    failure: Failure | None
    placement: Placement | None
    lease: Lease | None
    attempts: int
    trials_done: int
    trials_planned: int
    artifact_id: str | None
    created_at: datetime
    started_at: datetime | None
    """First claim; queue time ends here."""
    finished_at: datetime | None
