"""Jobs: requests, states, options and events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from domain import errors
from domain.artifacts import Runtime
from domain.digests import ModelDigest
from domain.records import RecordPlace
from domain.sizes import Size
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
LEASED_STATES = (JobState.RUNNING, JobState.CANCELING)
"""A worker holds the lease."""


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
    AUTO = "auto"  # selected by the service
    AUTOTVM = "autotvm"
    ANSOR = "ansor"
    METASCHEDULE = "metaschedule"

    @property
    def engine(self) -> str:
        """Name of the tuner's engine. Raises KeyError for ``auto``."""
        return _ENGINE_OF[self]

    @property
    def considered(self) -> tuple[Tuner, ...]:
        """Return the tuner itself, or for ``auto`` the candidates in order of preference."""
        return tuple(_ENGINE_OF) if self is Tuner.AUTO else (self,)


_ENGINE_OF = {Tuner.AUTOTVM: "relay", Tuner.ANSOR: "relay", Tuner.METASCHEDULE: "relax"}


class RunnerKind(StrEnum):
    LOCAL = "local"
    RPC = "rpc"  # devices behind a TVM RPC tracker
    NONE = "none"  # builds with existing records; nothing runs but, to verify it, an emulator of the target


class Precision(StrEnum):
    """Numeric precision inside a build; its inputs and outputs keep their dtypes."""

    F32 = "f32"
    BF16 = "bf16"  # operands of products; sums are float32
    FP16 = "fp16"
    INT8 = "int8"  # weights and activations, with scales found on seeded inputs
    AUTO = "auto"  # the fastest that passes the accuracy gate; f32 always passes

    @property
    def tuners(self) -> tuple[Tuner, ...]:
        """Tuners with schedules for this precision, preferred one first."""
        return _TUNERS_OF.get(self, Tuner.AUTO.considered)


CALIBRATED = (Precision.BF16, Precision.INT8)
"""Precisions that leave layers in float32, chosen by rows that do not judge."""
_TUNERS_OF = dict.fromkeys(CALIBRATED, (Tuner.METASCHEDULE,))
"""Tuners whose schedules use the processor's instructions for a precision; for other precisions all tuners are
suitable."""


class BundleFormat(StrEnum):
    """What a bundle contains in addition to the model's library."""

    SHARED = "shared"  # nothing
    WHEEL = "wheel"  # a Python package
    ONNX = "onnx"  # an operator of ONNX Runtime and a model of one node
    STATIC = "static"  # a static library of which a program may link several
    TVM = "tvm"  # mod.so: a shared library for TVM
    OBJECT = "object"  # mod.tar: object files for linking
    SYSTEM_LIB = "system-lib"  # a static library with self-registering functions, for systems without dlopen


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of tuning, the first one reached ends it with the best found so far; and the total limit of the job."""

    trials: int | None = None
    seconds: float | None = None
    total_seconds: float | None = None
    """Limit of the job's running time, from import to publication and over all attempts; None for no limit."""

    def __post_init__(self) -> None:
        if self.trials is None and self.seconds is None:
            raise errors.InvalidBudget("a budget needs trials, seconds, or both")
        if self.trials is not None and self.trials <= 0:
            raise errors.InvalidBudget(f"a budget of {self.trials} trials is not positive")
        for seconds in (self.seconds, self.total_seconds):
            if seconds is not None and not 0 < seconds < float("inf"):
                raise errors.InvalidBudget(f"a budget of {seconds} seconds is not a positive number")


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """How a trial is measured; names and meaning as in ``tvm.autotvm.LocalBuilder`` and ``LocalRunner``."""

    number: int = 1
    """Runs per repeat, raised until a repeat lasts ``min_repeat_ms``."""
    repeat: int = 3
    min_repeat_ms: int = 10
    timeout: float = 10.0
    """Time limit in seconds for building a trial, and again for measuring it."""
    enable_cpu_cache_flush: bool = False
    n_parallel: int | None = None
    """Number of parallel builders; None means one per core."""
    cooldown_interval: float = 0.0
    """Seconds to wait after each trial, for devices that throttle."""


@dataclass(frozen=True, kw_only=True)
class TunerOptions:
    """Options of TVM's tuners, and some of ours; None means a default for the target."""

    search: str = "xgb"
    """AutoTVM's tuner: ``xgb`` (XGBTuner), ``ga`` (GATuner), ``random`` or ``gridsearch``."""

    early_stopping: int | None = None
    """Stop a tuning task after this many trials without improvement."""
    n_trial: int | None = None
    """Maximum number of trials per tuning task."""
    loss_type: str = "rank-binary"
    """``reg``, ``rank`` or ``rank-binary``, as in TVM's XGBoostCostModel."""
    feature_type: str = "knob"
    keep_layout: bool = True
    """Search only memory layouts that neighbouring operators can share; if False, search these first, then any."""
    transfer: bool = True
    """Train the cost model on stored records of similar workloads before the first trial."""
    rewrite: bool = True
    """Tune an equivalent rewritten network: channels padded to vectors, grouped and transposed convolutions as
    plain ones, Winograd, fast exponentials. The published build is verified against the original network."""
    layout: str | None = None
    """``NCHW`` or ``NHWC``: layout of convolutions for Ansor and MetaSchedule; None depends on the target."""


@dataclass(frozen=True, kw_only=True)
class AccuracyGate:
    """Maximum deviation from the f32 reference; None means the precision's default."""

    max_rel: float | None = None
    """Maximum error of any element, as a share of the output's largest magnitude."""
    top1: float | None = None
    """Minimum share of rows, 0 to 1, with an unchanged top-1 class; for outputs that look like a classifier's."""


@dataclass(frozen=True, kw_only=True)
class RpcOptions:
    """Devices behind a TVM RPC tracker; names and meaning as in ``tvm.autotvm.RPCRunner``."""

    tracker: str
    """``HOST:PORT``"""
    key: str
    """Key of the devices: one kind of board."""
    session_timeout: float = 60.0
    """Time limit of a session in seconds, after which the device ends it."""


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    model_digest: ModelDigest
    budget: Budget
    target: str = NATIVE
    threads: int | None = None
    """Threads of the tuned model; None means all cores of the device."""
    tuner: Tuner = Tuner.AUTO
    runner: RunnerKind = RunnerKind.LOCAL
    rpc: RpcOptions | None = None
    """Set if and only if the runner is ``rpc``."""
    device: str | None = None
    """With runner ``none``, the key of the device whose records to use."""
    precision: Precision = Precision.F32
    accuracy: AccuracyGate = AccuracyGate()
    """Requirements of a build of reduced precision."""
    bundle_format: BundleFormat = BundleFormat.SHARED
    runtimes: tuple[Runtime, ...] = tuple(Runtime)
    """What the bundle may run with; always contains ``tvm``."""
    input_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sizes: tuple[Size, ...] = ()
    """Instead of ``input_shapes``: at least two, each of which a job of its own tunes, a part of this one."""
    padding: dict[str, float] = field(default_factory=dict)
    """With ``sizes``: value by input, with which it may be padded to the next size without changing the results."""
    data: str | None = None
    """Id of the data set whose rows judge the builds, and calibrate int8; None for seeded inputs alone."""
    measure: MeasureOptions = field(default_factory=MeasureOptions)
    tuner_options: TunerOptions = field(default_factory=TunerOptions)
    priority: int = 5
    """0 (first) to 9 (last), one of ``PRIORITIES``."""
    labels: dict[str, str] = field(default_factory=dict)
    group: str | None = None
    """Name of a group of related jobs, such as one model for several targets."""

    @property
    def tuners(self) -> tuple[Tuner, ...]:
        """Return the tuners that may serve the request, preferred one first."""
        # A job may be older than the restriction of its precision to other tuners; its engine refuses it.
        return tuple(each for each in self.tuner.considered if each in self.precision.tuners) or self.tuner.considered


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Reason of a job's failure."""

    code: str
    message: str
    hint: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A request as resolved by a worker: target, device and toolchain."""

    target: Target
    device: Device
    toolchain: Toolchain

    @property
    def record_place(self) -> RecordPlace:
        return RecordPlace(target=self.target.identity, device_key=self.device.key, toolchain=self.toolchain.identity)


@dataclass(frozen=True, kw_only=True)
class Lease:
    worker_id: str
    attempt: int
    """Number of claims. Every write of a worker carries its attempt, so one that lost its lease writes nothing."""
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
    part_of: str | None = None
    """The job of several sizes that this one tunes a size of; its worker runs it, and it is never queued alone."""
    created_at: datetime
    started_at: datetime | None
    """First claim, at which queue time ends."""
    finished_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Group of one owner; groups of other owners with the same name are different."""

    name: str
    owner: str
    counts: Mapping[JobState, int]
    """Number of jobs by state, without zeros."""
    newest_job: str
    newest_at: datetime


class EventKind(StrEnum):
    STATE = "state"  # {state, failure?}
    STAGE = "stage"
    """{stage, status, seconds?, share?, message?}: ``started``, ``finished``, or ``working``, with how many operators
    an engine has handled in the ``message``; of these at most one in two seconds."""
    PROGRESS = "progress"
    """{trials_done, trials_planned, seconds, seconds_left, share, estimate, basis, tasks}; at most two per second.

    ``share``: finished share of the job, 0 to 1, also in stage events. ``seconds_left``: of tuning; None if unknown.
    ``estimate``: seconds of one run of the network with the best schedules so far. ``tasks``: the changed ones, as
    {position, name, description, trials_done, trials_planned, best_latency, best_gflops}.
    """
    NOTE = "note"  # {message}


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    id: int
    """Increases within a job; used in ``Last-Event-ID``."""
    job_id: str
    kind: EventKind
    data: dict[str, Any] = field(default_factory=dict)
    at: datetime
