"""JSON schemas of jobs, plans, reports and groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from api import schemas as shared
from api.jobs import placing
from api.jobs.queueing import QueuePlace
from api.webhooks import schemas as webhook_schemas
from domain.artifacts import Runtime, Variant
from domain.digests import ModelDigest
from domain.jobs import BundleFormat, JobState, Precision, RunnerKind, Stage, Tuner
from domain.jobs import Group as DomainGroup
from domain.jobs import Job as DomainJob
from domain.jobs import Placement as DomainPlacement
from domain.models import Model
from domain.profiles import Bound
from domain.sizes import Size as DomainSize
from domain.stage_results import PlanResult
from domain.tuning_tasks import TuningTask
from domain.webhooks import Webhook
from domain.workers import FleetWarning, Worker
from storage.model_overviews import Gain


class Budget(BaseModel):
    trials: int | None
    seconds: float | None
    total_seconds: float | None = Field(description="Limit of the job's running time; null for no limit.")


class Placement(BaseModel):
    """The target, device and toolchain that the worker resolved."""

    target: str = Field(description="TVM target with its thread count: llvm -mcpu=znver3 -num-cores=2.")
    device_key: str
    device: str
    toolchain: str


class Rpc(BaseModel):
    """Devices behind a TVM RPC tracker."""

    tracker: str
    key: str
    session_timeout: float


class Accuracy(BaseModel):
    """Limits that a build of reduced precision must meet to be published. Null: the precision's default."""

    max_rel: float | None
    top1: float | None


class Size(BaseModel):
    """One entry point of a job of several sizes."""

    name: str = Field(description="The value of every dimension that varies: batch=1, sequence=16.")
    values: dict[str, int] = Field(description="By dimension: its name in the model, else INPUT.AXIS.")
    input_shapes: dict[str, list[int]]
    share: float = Field(description="Of the budget, and of the runs that are expected.")


class SizeState(Size):
    """An entry point, and the job that tunes it."""

    job: str = Field(description="Id of the part: a job of this size.")
    state: JobState
    stage: Stage | None
    trials_done: int
    trials_planned: int
    artifact: str | None = Field(description="Id of the part's own artifact.")
    median: float | None = Field(description="Median seconds of a run; null before it is known.")
    speedup_over_untuned: float | None
    speedup_over_reference: float | None


class Job(BaseModel):
    id: str
    part_of: str | None = Field(description="The job of several sizes of which this one tunes one; null for others.")
    owner: str = Field(description="Owner; admins see the jobs of all owners.")
    state: JobState
    stage: Stage | None = Field(description="The current stage, or the last one reached.")
    model: str = Field(description="The model's id.")
    model_digest: ModelDigest
    model_name: str
    target: str
    threads: int | None
    tuner: Tuner
    runner: RunnerKind
    rpc: Rpc | None
    device: str | None = Field(description="With runner 'none': the key of the device whose records are used.")
    precision: Precision
    accuracy: Accuracy
    bundle_format: BundleFormat
    runtimes: list[Runtime] = Field(description="What the bundle may run with.")
    budget: Budget
    measure: dict[str, Any] = Field(description="How trials are measured, as requested or by default.")
    tuner_options: dict[str, Any] = Field(
        description="As requested or by default; a tuner ignores options of other tuners."
    )
    input_shapes: dict[str, list[int]] = Field(description="Empty with several sizes.")
    sizes: Sequence[Size] = Field(description="Entry points of the bundle, if there are several.")
    padding: dict[str, float] = Field(description="With several sizes: what inputs may be padded with.")
    data: str | None = Field(description="Id of the data set; null for seeded inputs alone.")
    priority: int
    labels: dict[str, str]
    group: str | None
    placement: Placement | None
    trials_done: int
    trials_planned: int
    attempts: int
    queue_seconds: float = Field(description="From creation to the first claim by a worker, or to now.")
    run_seconds: float = Field(description="From the first claim to the end, or to now.")
    warnings: list[shared.Notice] = Field(
        description="Why a queued job does not start. no_worker: no live worker can run it; it stays queued until "
        "one registers. details.missing names the need: worker, device, machine, cpu, engine or tracker."
    )
    waits_for: str | None = Field(
        description="What this queued job needs that no live worker has, or that its token's limit of running jobs "
        "is reached; null when a worker can claim it."
    )
    queue_position: int | None = Field(
        description="Place in the queue, 1 for the next job to start; null if the job is not queued, waits for more "
        "than its turn, or is not among the first 100."
    )
    queued_before: list[str] = Field(
        description="Ids of up to ten queued jobs of the same owner that start before, the next one first."
    )
    failure: shared.Failure | None
    artifact_id: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class CreatedJob(Job):
    webhook: webhook_schemas.JobWebhook | None


class JobPage(BaseModel):
    jobs: list[Job] = Field(description="Newest first.")
    next_page_token: str | None = Field(description="Null on the last page.")


class Group(BaseModel):
    """Jobs of one owner with the same group name."""

    name: str
    owner: str
    jobs: int
    counts: dict[JobState, int] = Field(description="Number of jobs in each state.")
    newest_job: str = Field(description="Id of the newest job.")
    newest_at: datetime


class GroupPage(BaseModel):
    groups: list[Group] = Field(description="The group with the newest job first.")
    next_page_token: str | None = Field(description="Null on the last page.")


class StageTime(BaseModel):
    stage: Stage
    attempt: int
    seconds: float
    started_at: datetime
    finished_at: datetime


class Task(BaseModel):
    """A tuning task: an operator or subgraph that TVM extracted from the model."""

    position: int
    name: str = Field(description="TVM's task name.")
    description: str
    workload_key: str
    weight: int = Field(description="How often one run of the model executes it.")
    flop: float
    space_size: int
    trials_planned: int
    trials_done: int
    best_latency: float | None
    best_gflops: float | None
    failures: dict[str, int] = Field(description="Failed trials by kind of failure.")


class Planned(BaseModel):
    """Result of the plan stage; the report explains the final choice."""

    tuner: Tuner = Field(description="The leading tuner.")
    tasks: int
    tasks_covered: int = Field(description="Tasks that need no trials.")
    trials_on_record: int
    records_passed_over: dict[str, int] = Field(
        description="Stored records that cannot be used, by what differs: toolchain, device or target."
    )
    elsewhere: dict[str, str] = Field(description="Workloads that other jobs are searching, with their jobs.")


class JobDetail(Job):
    sizes: Sequence[SizeState] = Field(description="Entry points of the bundle, if there are several.")
    planned: Planned | None = Field(description="Null before the plan stage ends.")
    choice: list[str] = Field(description="Why this engine and tuner were chosen, as far as decided.")
    timeline: list[StageTime] = Field(description="The finished stages, in order.")
    tasks: list[Task]
    failures: dict[str, int] = Field(description="Failed trials of the whole job by kind of failure.")


class TunerPlan(BaseModel):
    """The plan of tuning with one tuner."""

    tuner: Tuner
    tasks: int
    tasks_covered: int = Field(
        description="Tasks that need no trial: earlier jobs searched them, or they have only one schedule."
    )
    tasks_left_out: int = Field(
        description="Tasks without a record that get no trial, because neither this budget nor an earlier one as large"
        " covers them. 0 when nothing is measured."
    )
    trials: int = Field(description="Trials that the job would run.")
    trials_on_record: int = Field(description="Stored trials of these tasks that count.")
    records_passed_over: dict[str, int] = Field(
        description="Stored records that cannot be used, by what differs: toolchain, device or target."
    )
    minutes: float = Field(description="Upper bound for tuning; compiling and benchmarking are extra.")
    seconds_a_trial: float
    measured_rate: bool = Field(description="Whether seconds_a_trial was measured on this device or is estimated.")


class EnginePlan(BaseModel):
    name: str
    toolchain: str | None
    imports: bool | None = Field(description="Null when the engine could not be asked; failure says why.")
    unsupported_operators: dict[str, int] = Field(description="Operators with their counts.")
    failure: shared.Failure | None
    tuners: list[TunerPlan]
    refusals: dict[Tuner, shared.Failure] = Field(description="Tuners that cannot run the request, and why.")


class Plan(BaseModel):
    """What a job for this request would do. No job was created."""

    possible: bool = Field(description="Whether an engine can import the model and has a tuner for the request.")
    model: str
    model_name: str
    tuner: Tuner
    considered: list[Tuner] = Field(description="Tuners that the job would choose from.")
    worker: str | None = Field(description="The live worker that would run the job; null if there is none.")
    target: str | None
    device_key: str | None
    device: str | None
    engines: list[EnginePlan]
    notes: list[str]


class Timing(BaseModel):
    """Seconds per run, from one interleaved benchmark."""

    mean: float
    median: float
    p90: float
    p99: float
    min: float
    max: float
    std: float
    ci_low: float | None = Field(
        description="Bounds of a 95 % confidence interval of the median; null with few samples."
    )
    ci_high: float | None
    processes: int = Field(description="Processes that were timed one after another; the interval is over them.")
    per_process: list[int] = Field(description="Samples of each process; empty in reports of earlier releases.")
    samples: list[float]


class OutputError(BaseModel):
    output: str
    dtype: str
    max_abs: float
    max_rel: float = Field(description="Relative to the largest magnitude in the reference output.")
    atol: float
    rtol: float = Field(description="In f32, larger than 5e-4 only if the reference's own rounding error is large.")
    passed: bool
    rounding: float | None = Field(
        description="The reference's own rounding error, estimated and relative as max_rel is; null if not estimated."
    )
    ties: int = Field(description="Elements that only runs of the reference with rounded operands agree with.")
    rms: float | None = Field(
        description="Root mean square of the error, relative to the output's, in the part closest to its limit."
    )
    rms_limit: float | None
    part: str | None = Field(description="That part, such as `index 3 of axis 1`; null for the whole output.")
    top1: float | None = Field(
        description="Share of rows whose largest element is at the reference's index; null if not a classifier."
    )
    least_top1: float | None = Field(description="The required share.")
    within: float | None = Field(
        description="Share of your rows, or of a classifier's vectors in them, without an element beyond the limit; "
        "null where every element must be within it."
    )
    least_within: float | None = Field(description="The required share.")
    fault: str | None = Field(
        description="Why the error is no number, such as NaN or a wrong shape; the errors are then 1e308."
    )
    not_finite: int = Field(description="Elements that are NaN or infinite where the reference is finite.")
    not_compared: bool = Field(
        description="True if the reference has no finite number, or no element, there on any input, so that nothing "
        "was compared. The artifact is then not verified."
    )
    empty: bool = Field(description="True if the reference returns no element there on any input.")


class WorstRow(BaseModel):
    row: int = Field(description="Index of the run's first row in the data set.")
    output: str
    max_rel: float


class LabelledAccuracy(BaseModel):
    """Accuracy against the labels, of the reference and of the build, on the same rows."""

    output: str
    measure: str = Field(description="top1: share of rows with the label's class first; error: mean absolute error.")
    count: int = Field(description="Rows, or elements for error.")
    reference: float
    build: float
    reference_top5: float | None
    build_top5: float | None = Field(description="Null with five classes or fewer, and for error.")


class RowsCompared(BaseModel):
    """Comparison with the reference on rows of the data set."""

    rows: int
    elements: int = Field(description="Of all outputs.")
    worst: list[WorstRow] = Field(description="The largest errors first.")
    labelled: LabelledAccuracy | None = Field(description="Null without labels.")


class DataUse(BaseModel):
    """The data set, and what its rows were used for."""

    id: str
    name: str
    digest: str = Field(description="sha256 of the .npz file, hex.")
    rows: int
    calibration_rows: int = Field(description="Rows that int8 or bf16 was calibrated with; none of them judged.")
    judging_rows: int


class Verification(BaseModel):
    passed: bool
    precision: str = Field(description="Precision of the build, which decides the tolerances.")
    seeds: list[int]
    inputs: dict[str, str] = Field(description="Kind of values used for each input: image, ids, mask, …")
    outputs: list[OutputError]
    rows: RowsCompared | None = Field(description="Null without a data set.")


class FormatVerification(BaseModel):
    """Verification of the published build as TVM loads it, apart from that of the library."""

    file: str = Field(description="The bundle's file that TVM loads: mod.so, mod.tar or mod.a.")
    verification: Verification | None = Field(description="Null if it was not run.")
    not_run: str = Field(description="Why it was not run; empty if it was.")


class FailedTask(BaseModel):
    """A tuning task without a valid trial."""

    position: int
    name: str
    failures: dict[str, int] = Field(description="Failed trials by kind of failure.")
    hint: str


class Contender(BaseModel):
    """A build that competed for publication."""

    name: str
    tuner: str | None
    engine: str
    precision: str
    rewritten: bool = Field(description="Whether the network was rewritten before it was built.")
    records: int = Field(description="Number of tuning records used.")
    trials: int = Field(description="Trials of this job spent on it.")
    seconds_tuned: float
    seconds: float | None = Field(description="Median of a run in the benchmark; null if it was not benchmarked.")
    verified: bool
    verdict: str = Field(description="Why it was rejected, or that it won.")


class Conditions(BaseModel):
    """Conditions of the benchmark."""

    device: str
    threads: int
    governor: str | None = Field(description="The kernel's frequency governor; null if unknown.")
    megahertz: tuple[float, float] | None = Field(
        description="Lowest and highest measured clock; null if it cannot be measured."
    )
    load: float | None = Field(description="Mean number of other runnable processes during the benchmark.")
    drift: float | None = Field(description="Change of a calibration loop's time: 0.03 is 3 %.")
    attempts: int = Field(
        description="Number of benchmarks run until one was quiet, or its speedups were known precisely."
    )
    noisy: bool = Field(
        description="Whether the machine was busy: times are approximate; speedups are as precise as their intervals."
    )
    reasons: list[str] = Field(description="What was noisy.")


class Report(BaseModel):
    """The final comparison of a job."""

    timings: dict[Variant, Timing]
    verifications: dict[Variant, Verification]
    published: Variant
    speedup_over_untuned: float = Field(description="Median over rounds that time both; 1 if untuned is published.")
    speedup_over_reference: float | None = Field(description="Null if the reference cannot run (RPC).")
    speedup_over_untuned_interval: tuple[float, float] | None = Field(
        description="Bounds of a 95 % confidence interval; null with few samples, or if untuned is published."
    )
    speedup_over_reference_interval: tuple[float, float] | None = Field(
        description="Bounds of a 95 % confidence interval; null with few samples, or without a reference."
    )
    runtime: Runtime = Field(description="The fastest verified way to run the bundle; tvm: what was compiled.")
    runtime_variant: Variant | None = Field(
        description="As what it was timed; null for tvm, and for the reference in reports of earlier releases."
    )
    runtime_version: str = Field(description="Of that runtime; empty for tvm.")
    runtime_model: str = Field(description="The bundle's file that it runs; empty for tvm.")
    runtime_precision: str = Field(description="In which that runtime computes; f32 for tvm.")
    runtime_options: dict[str, str] = Field(description="Options of that runtime that differ from its defaults.")
    runtime_speedup_over_untuned: float | None = Field(
        description="Of the bundle in its runtime; null without a time of either."
    )
    summary: str
    engines: dict[Variant, str] = Field(description="Toolchain of each compiled variant.")
    failed_tasks: list[FailedTask]
    choice: list[str] = Field(description="Why this engine and tuner were chosen: a sentence for each candidate.")
    compared_with: str = Field(description="What the reference is: ONNX Runtime, or an IRModule's unscheduled build.")
    precision: str = Field(description="Precision of the published variant.")
    portfolio: list[Contender] = Field(
        description="Every build that competed: benchmarked builds, fastest first, then the others."
    )
    conditions: Conditions | None = Field(description="Null if nothing was measured on the worker itself.")
    emulator: str = Field(
        description="What ran the builds for the verification, such as qemu-aarch64; empty if their target did, or "
        "nothing."
    )
    format_verification: FormatVerification | None = Field(
        description="Null if the bundle's format has no file for TVM, as shared."
    )
    data: DataUse | None = Field(description="Null without a data set.")
    sizes: list[SizeReport] = Field(
        description="Of a bundle of several sizes, whose own timings are means over them, by the expected runs."
    )


class SizeReport(BaseModel):
    """What was found of one size."""

    size: Size
    job: str = Field(description="The job that tuned it.")
    report: Report


class Bandwidth(BaseModel):
    """Speed at which the job's threads together read data of this size again and again."""

    size: int
    speed: float = Field(description="Bytes per second.")


class Peak(BaseModel):
    """Measured limits of the machine at the job's number of threads."""

    flops: float | None = Field(description="In float32, per second; null if it cannot be measured.")
    bandwidths: list[Bandwidth]


class OperatorTime(BaseModel):
    """Kernels, and ONNX Runtime's nodes and OpenVINO's layers that compute the same; times are seconds of a run."""

    name: str = Field(
        description="Of ONNX Runtime's first node or, if none was matched, of the kernel, or the type of OpenVINO's "
        "layers."
    )
    kernels: list[str] = Field(description="Empty for nodes that no kernel was matched with.")
    nodes: list[str] = Field(description="Empty for kernels that no node was matched with.")
    seconds: float = Field(description="In place: within runs of the whole network.")
    reference_seconds: float
    loss: float = Field(description="Seconds more than ONNX Runtime; negative where the build is faster.")
    alone_seconds: float | None = Field(description="Best time of the tuning task by itself.")
    task: int | None = Field(description="Position of the tuning task; null if none was matched.")
    flop: float | None
    bytes: int | None = Field(description="Size of all tensors that it reads and writes.")
    share: float | None = Field(description="The least time that the machine's peak allows, divided by `seconds`.")
    bound: Bound | None = Field(description="Which limit sets that least time.")
    layers: list[str] = Field(description="Layers of OpenVINO; those of several operators count with the longest.")
    openvino_seconds: float | None = Field(description="Of these layers; null if OpenVINO was not profiled.")


class Profile(BaseModel):
    """A build's time by operator; operators and `outside` add up to `seconds`, and so for ONNX Runtime and OpenVINO."""

    variant: Variant
    compared_with: str
    threads: int
    seconds: float = Field(description="Mean of the quicker half of whole runs, as all times are.")
    reference_seconds: float
    outside: float = Field(description="Outside of kernels; below zero if noise is larger.")
    reference_outside: float
    operators: list[OperatorTime] = Field(description="The largest loss first.")
    peak: Peak
    openvino_seconds: float | None = Field(
        description="Of OpenVINO in float32 on the same model as ONNX Runtime; null if it was not profiled: not "
        "installed, not among the job's runtimes, or wrong."
    )
    openvino_outside: float | None


def job(
    value: DomainJob,
    of: Model,
    *,
    now: datetime,
    living: Sequence[Worker],
    held: Collection[str],
    place: QueuePlace | None,
) -> Job:
    """Convert a job; ``living`` are workers that could run it, ``held`` ids of jobs held in the queue by a quota."""
    request = value.request
    queue_end = value.started_at or value.finished_at or now
    run_end = value.finished_at or now
    return shared.fill(
        Job,
        request,
        value,
        model=of.id,
        model_name=of.name,
        measure=asdict(request.measure),
        tuner_options=asdict(request.tuner_options),
        placement=_placement(value.placement) if value.placement else None,
        queue_seconds=(queue_end - value.created_at).total_seconds(),
        warnings=placing.warnings(value, living),
        waits_for=placing.waits_for(value, living, held),
        queue_position=place.position if place else None,
        queued_before=list(place.before) if place else [],
        run_seconds=(run_end - value.started_at).total_seconds() if value.started_at else 0.0,
    )


def warning(value: FleetWarning) -> shared.Notice:
    return shared.fill(shared.Notice, value, details={})


def size(value: DomainSize, part: DomainJob, gain: Gain | None) -> SizeState:
    """Convert a size with the job that tunes it; ``gain`` is that of its artifact."""
    return shared.fill(
        SizeState,
        part,
        value,
        job=part.id,
        artifact=part.artifact_id,
        median=gain.median if gain else None,
        speedup_over_untuned=gain.over_untuned if gain else None,
        speedup_over_reference=gain.over_reference if gain else None,
    )


def created(value: Job, webhook: Webhook | None, *, shows_secret: bool) -> CreatedJob:
    secret = webhook.secret if webhook and shows_secret else None
    shown = webhook_schemas.JobWebhook(url=webhook.url, secret=secret) if webhook else None
    return CreatedJob(**value.model_dump(), webhook=shown)


def group(value: DomainGroup) -> Group:
    return shared.fill(Group, value, jobs=sum(value.counts.values()))


def task(value: TuningTask) -> Task:
    extracted, best = value.extracted, value.best_latency
    return shared.fill(Task, extracted, value, best_gflops=extracted.flop / best / 1e9 if best else None)


def planned(result: PlanResult | None) -> Planned | None:
    if result is None:
        return None
    return shared.fill(Planned, result, tasks_covered=result.covered, records_passed_over=result.passed_over)


def _placement(value: DomainPlacement) -> Placement:
    return Placement(
        target=value.target.identity,
        device_key=value.device.key,
        device=value.device.name,
        toolchain=value.toolchain.identity,
    )
