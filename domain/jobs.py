"""One tuning request and its whole life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from domain import errors
from domain.digests import ModelDigest
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


PRIORITIES = range(10)
"""0 goes first."""

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
    ANSOR = "ansor"
    METASCHEDULE = "metaschedule"

    @property
    def engine(self) -> str:
        """Name of the engine that has this tuner. Raises KeyError for ``auto``."""
        return _ENGINE_OF[self]

    @property
    def considered(self) -> tuple[Tuner, ...]:
        """Itself, or what ``auto`` chooses from, in the order in which it prefers them where nothing else tells."""
        return tuple(_ENGINE_OF) if self is Tuner.AUTO else (self,)


_ENGINE_OF = {Tuner.AUTOTVM: "relay", Tuner.ANSOR: "relay", Tuner.METASCHEDULE: "relax"}


class RunnerKind(StrEnum):
    LOCAL = "local"
    RPC = "rpc"  # devices behind a TVM RPC tracker
    NONE = "none"  # builds with the records there are; nothing runs, so nothing is proven on the target


class Precision(StrEnum):
    """Numeric precision inside a build; its inputs and outputs keep their dtypes."""

    F32 = "f32"
    BF16 = "bf16"  # operands of products; sums are float32
    FP16 = "fp16"
    INT8 = "int8"  # weights and activations, with scales found on seeded inputs
    AUTO = "auto"  # the fastest of those that pass the accuracy gate; f32 always does

    @property
    def tuners(self) -> tuple[Tuner, ...]:
        """Those that have schedules for it, the preferred one first."""
        return _TUNERS_OF.get(self, Tuner.AUTO.considered)


_TUNERS_OF = {Precision.BF16: (Tuner.AUTOTVM,), Precision.INT8: (Tuner.AUTOTVM,)}
"""Whose templates use the processor's instructions for a precision; of others every tuner compiles."""


class BundleFormat(StrEnum):
    """What a bundle contains in addition to, or instead of, a shared library."""

    SHARED = "shared"  # mod.so
    OBJECT = "object"  # mod.tar: object files, to be linked elsewhere
    SYSTEM_LIB = "system-lib"  # a static library whose functions register themselves, for places without dlopen


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What tuning may cost; the first limit reached ends it with the best found so far."""

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.trials is None and self.seconds is None:
            raise errors.InvalidBudget("a budget needs trials, seconds, or both")
        if self.trials is not None and self.trials <= 0:
            raise errors.InvalidBudget(f"a budget of {self.trials} trials is not positive")
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise errors.InvalidBudget(f"a budget of {self.seconds} seconds is not a positive number")


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
    cooldown_interval: float = 0.0
    """Seconds to wait after measuring one trial, for a device that slows down as it gets hot."""


@dataclass(frozen=True, kw_only=True)
class TunerOptions:
    """Options of TVM's tuners that matter, and some of ours; None keeps what suits the target."""

    search: str = "xgb"
    """AutoTVM's tuner: ``xgb`` (XGBTuner), ``ga`` (GATuner), ``random`` or ``gridsearch``."""

    early_stopping: int | None = None
    """Trials of one tuning task without a better one before it is left."""
    n_trial: int | None = None
    """Most trials for one tuning task."""
    loss_type: str = "rank-binary"
    """``reg``, ``rank`` or ``rank-binary``, as TVM's XGBoostCostModel has them."""
    feature_type: str = "knob"
    keep_layout: bool = True
    """Search only memory layouts that neighbouring operators can agree on; else those, then any."""
    transfer: bool = True
    """Teach the cost model with stored records of other workloads of the same kind before the first trial."""
    rewrite: bool = True
    """Tune a rewritten network: channels padded to vectors, grouped and transposed convolutions as plain ones,
    Winograd, quick exponentials. What is published is compared with the network as it was."""
    layout: str | None = None
    """``NCHW`` or ``NHWC``: how Ansor and MetaSchedule see convolutions; None is what suits the target."""


@dataclass(frozen=True, kw_only=True)
class AccuracyGate:
    """How far results may be from the f32 reference's; None leaves a limit at the precision's own default."""

    max_rel: float | None = None
    """Largest error of any element, as a share of its output's largest magnitude."""
    top1: float | None = None
    """Least share of rows, 0 to 1, whose largest element stays at the same place; of outputs that look like a
    classifier's."""


@dataclass(frozen=True, kw_only=True)
class RpcOptions:
    """Where devices are found; names and meaning as in ``tvm.autotvm.RPCRunner``."""

    tracker: str
    """``HOST:PORT``"""
    key: str
    """The devices' key: one kind of board."""
    session_timeout: float = 60.0
    """Seconds a session may last before the device takes itself back."""


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    model_digest: ModelDigest
    budget: Budget
    target: str = NATIVE
    threads: int | None = None
    """Threads the tuned model will run with; None means every core of the device."""
    tuner: Tuner = Tuner.AUTO
    runner: RunnerKind = RunnerKind.LOCAL
    rpc: RpcOptions | None = None
    """Given exactly when the runner is ``rpc``."""
    device: str | None = None
    """With runner ``none``, the key of the device whose records to build with."""
    precision: Precision = Precision.F32
    accuracy: AccuracyGate = AccuracyGate()
    """What a narrower precision must keep to be published."""
    bundle_format: BundleFormat = BundleFormat.SHARED
    input_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    measure: MeasureOptions = field(default_factory=MeasureOptions)
    tuner_options: TunerOptions = field(default_factory=TunerOptions)
    priority: int = 5
    """0 (first) to 9 (last), one of ``PRIORITIES``."""
    labels: dict[str, str] = field(default_factory=dict)
    group: str | None = None
    """Jobs that belong together, such as one model for several targets."""


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
    owner: str
    request: JobRequest
    state: JobState
    stage: Stage | None
    """The current stage, or the last one reached."""
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


@dataclass(frozen=True, kw_only=True)
class Group:
    """An owner's: another owner's group of the same name is another one."""

    name: str
    owner: str
    counts: Mapping[JobState, int]
    """Of the states that any of its jobs is in."""
    newest_job: str
    newest_at: datetime


class EventKind(StrEnum):
    STATE = "state"  # {state, failure?}
    STAGE = "stage"  # {stage, status: started|finished, seconds?}
    PROGRESS = "progress"
    """{trials_done, trials_planned, seconds, estimate, basis, tasks}; at most two a second.

    ``estimate``: seconds of one run of the network with the best schedules so far. ``tasks``: those that changed, as
    {position, name, description, trials_done, trials_planned, best_latency, best_gflops}.
    """
    NOTE = "note"  # {message}


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    id: int
    """Grows within a job; what ``Last-Event-ID`` names."""
    job_id: str
    kind: EventKind
    data: dict[str, Any] = field(default_factory=dict)
    at: datetime
