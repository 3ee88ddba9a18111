"""The JSON that the API answers with. Times are UTC, durations and latencies seconds, sizes bytes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from domain.artifacts import Variant
from domain.jobs import BundleFormat, JobState, Precision, RunnerKind, Stage, Tuner
from domain.models import ModelFormat
from domain.tokens import Scope


class Tensor(BaseModel):
    name: str
    dtype: str = Field(description="numpy's name: float32, int64, …")
    shape: list[int | str | None] = Field(description="Sizes; a dynamic one is its symbol, or null.")


class Model(BaseModel):
    id: str
    digest: str = Field(description="sha256 of the uploaded bytes, hex.")
    name: str
    format: ModelFormat
    bytes: int
    inputs: list[Tensor]
    outputs: list[Tensor]
    opset: int = Field(description="Of ONNX, as ir_version; 0 of an IRModule.")
    ir_version: int
    operators: dict[str, int] = Field(description="Operator to count; of an IRModule its function.")
    parameters: int = Field(description="Number of scalar weights.")
    created_at: datetime


class ModelPage(BaseModel):
    models: list[Model] = Field(description="Newest first.")
    next_page_token: str | None = Field(description="Null on the last page.")


class Budget(BaseModel):
    trials: int | None
    seconds: float | None


class Failure(BaseModel):
    code: str
    message: str
    hint: str | None
    details: dict[str, Any]


class Notice(Failure):
    """What is no reason to refuse anything, and should be known at once."""


class Placement(BaseModel):
    """What the worker made of the request."""

    target: str = Field(description="TVM target with its thread count: llvm -mcpu=znver3 -num-cores=2.")
    device_key: str
    device: str
    toolchain: str


class Rpc(BaseModel):
    """Where devices are found, behind a TVM RPC tracker."""

    tracker: str
    key: str
    session_timeout: float


class Accuracy(BaseModel):
    """What a narrower precision must keep to be published; null: the precision's own default."""

    max_rel: float | None
    top1: float | None


class Job(BaseModel):
    id: str
    owner: str = Field(description="Whose it is; admins see those of all.")
    state: JobState
    stage: Stage | None = Field(description="The stage at work, or the last one reached.")
    model: str = Field(description="The model's id.")
    model_digest: str
    model_name: str
    target: str
    threads: int | None
    tuner: Tuner
    runner: RunnerKind
    rpc: Rpc | None
    device: str | None = Field(description="With runner 'none', the key of the device whose records it builds with.")
    precision: Precision
    accuracy: Accuracy
    bundle_format: BundleFormat
    budget: Budget
    measure: dict[str, Any] = Field(description="How trials are measured, as it was asked for or by default.")
    tuner_options: dict[str, Any] = Field(description="As asked for or by default; a tuner overlooks the others'.")
    input_shapes: dict[str, list[int]]
    priority: int
    labels: dict[str, str]
    group: str | None
    placement: Placement | None
    trials_done: int
    trials_planned: int
    attempts: int
    queue_seconds: float = Field(description="From creation to the first claim by a worker, or to now.")
    run_seconds: float = Field(description="From the first claim to the end, or to now.")
    warnings: list[Notice] = Field(
        description="Of a queued job, what keeps it so for now. no_worker: no living worker can serve it; it is kept "
        "and taken when one comes, and details.missing names the need: worker, device, machine, cpu, engine or tracker."
    )
    waits_for: str | None = Field(
        description="What this queued job needs and no living worker has, or that as many of its token's jobs run as "
        "may; null when a worker can take it."
    )
    failure: Failure | None
    artifact_id: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class JobWebhook(BaseModel):
    """A server that is told of the job's end."""

    url: str
    secret: str | None = Field(
        description="What its messages are signed with: shown in the answer to the request that brought the webhook, "
        "and never again."
    )


class CreatedJob(Job):
    webhook: JobWebhook | None


class Delivery(BaseModel):
    """The message of a job's end, and what came of its latest attempt."""

    id: str = Field(description="The message's webhook-id.")
    state: Literal["pending", "delivered", "given_up"]
    attempts: int
    created_at: datetime
    next_attempt_at: datetime | None = Field(description="Null once it is delivered or given up.")
    delivered_at: datetime | None
    last_status: int | None = Field(description="HTTP status of the last answer.")
    last_error: str | None


class Deliveries(BaseModel):
    url: str | None = Field(description="Null for a job without a webhook.")
    deliveries: list[Delivery] = Field(description="Oldest first; none before the job has ended.")


class JobPage(BaseModel):
    jobs: list[Job] = Field(description="Newest first.")
    next_page_token: str | None = Field(description="Null on the last page.")


class Group(BaseModel):
    """Jobs that were created with the same group by one owner."""

    name: str
    owner: str
    jobs: int
    counts: dict[JobState, int] = Field(description="Jobs of each state that any of them is in.")
    newest_job: str = Field(description="Id of the job that was created last.")
    newest_at: datetime


class GroupPage(BaseModel):
    groups: list[Group] = Field(description="The one with the newest job first.")
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
    weight: int = Field(description="How often the model runs it.")
    flop: float
    space_size: int
    trials_planned: int
    trials_done: int
    best_latency: float | None
    best_gflops: float | None
    failures: dict[str, int] = Field(description="What went wrong, to count of trials.")


class Planned(BaseModel):
    """What the plan stage came to; see the report for why in the end."""

    tuner: Tuner = Field(description="The one that leads.")
    tasks: int
    tasks_covered: int = Field(description="Tasks that get no trials.")
    trials_on_record: int
    records_passed_over: dict[str, int] = Field(
        description="Stored records that are never applied, by what sets them apart: toolchain, device or target."
    )
    elsewhere: dict[str, str] = Field(description="Workloads that other jobs search right now, to their jobs.")


class JobDetail(Job):
    planned: Planned | None = Field(description="Null before the plan stage has ended.")
    choice: list[str] = Field(description="Why this engine and tuner, as far as it is decided.")
    timeline: list[StageTime] = Field(description="The finished stages, in order.")
    tasks: list[Task]
    failures: dict[str, int] = Field(description="Failed trials of the whole job by what went wrong.")


class TunerPlan(BaseModel):
    """What tuning with one tuner would take."""

    tuner: Tuner
    tasks: int
    tasks_covered: int = Field(
        description="Tasks that need no trial: others have searched them, or there is no choice."
    )
    tasks_left_out: int = Field(
        description="Tasks without a record that get no trial: the budget does not reach for them, nor did an earlier"
        " one as large. 0 where nothing is to be measured."
    )
    trials: int = Field(description="Trials that the job would plan.")
    trials_on_record: int = Field(description="Trials of these tasks that are stored and count.")
    records_passed_over: dict[str, int] = Field(
        description="Stored records that are never applied, by what sets them apart: toolchain, device or target."
    )
    minutes: float = Field(description="Of tuning, at most; compiling and benchmarking come on top.")
    seconds_a_trial: float
    measured_rate: bool = Field(description="Whether seconds_a_trial comes from this device's trials, or is a guess.")


class EnginePlan(BaseModel):
    name: str
    toolchain: str | None
    imports: bool | None = Field(description="Null when the engine could not be asked; failure says why.")
    unsupported_operators: dict[str, int] = Field(description="Operator to count.")
    failure: Failure | None
    tuners: list[TunerPlan]
    refusals: dict[Tuner, Failure] = Field(description="Tuners that cannot take the request, and why.")


class Plan(BaseModel):
    """What a job for this request would do. Nothing was queued."""

    possible: bool = Field(description="Whether any engine imports the model and has a tuner that takes the request.")
    model: str
    model_name: str
    tuner: Tuner
    considered: list[Tuner] = Field(description="The tuners that the job would choose from.")
    worker: str | None = Field(description="The living worker that would take the job; null when none would.")
    target: str | None
    device_key: str | None
    device: str | None
    engines: list[EnginePlan]
    notes: list[str]


class Artifact(BaseModel):
    id: str
    digest: str = Field(description="sha256 of the bundle's bytes, hex; also its strong ETag.")
    bytes: int
    job_id: str | None = Field(description="The job that published it first; null when that is somebody else's.")
    model_digest: str
    input_shapes: dict[str, list[int]]
    target: str
    device_key: str
    toolchain: str
    precision: str
    bundle_format: str
    verified: bool = Field(description="False for what was built for a machine that nobody could run it on.")
    report: Report
    download: str = Field(description="Path of the bundle's bytes on this server.")
    created_at: datetime


class Deletion(BaseModel):
    id: str
    gone: bool = Field(description="False where it is only yours no longer: others have uploaded the same model.")


class ArtifactPage(BaseModel):
    artifacts: list[Artifact] = Field(description="Newest first.")
    next_page_token: str | None = Field(description="Null on the last page.")


class Best(BaseModel):
    artifact: Artifact
    why: str = Field(description="Why this one, in a sentence.")


class Accelerator(BaseModel):
    key: str
    name: str


class Worker(BaseModel):
    id: str
    hostname: str
    pid: int
    device_key: str
    device: str
    native_target: str
    accelerators: list[Accelerator] = Field(description="GPUs; a worker that has one takes CUDA jobs only.")
    toolchains: list[str]
    current_job: str | None = Field(description="Null when it is somebody else's, too.")
    busy: bool = Field(description="Whether it works on a job, whoever's.")
    alive: bool
    release: str = Field(description="Of the application; empty of workers that are too old to tell.")
    trackers: list[str] | None = Field(description="RPC trackers that it may use; null for any.")
    clock_ahead: float | None = Field(description="Seconds by which its host's clock is before the database's.")
    started_at: datetime
    last_seen_at: datetime


class Workers(BaseModel):
    workers: list[Worker] = Field(description="Longest-serving first.")
    warnings: list[Notice] = Field(
        description="workers_differ: not all living workers are of this server's release. clock_differs: hosts' clocks "
        "are off."
    )
    next_page_token: str | None = Field(description="Null on the last page.")


class Device(BaseModel):
    key: str
    name: str
    kind: Literal["cpu", "gpu"]
    threads: int
    workers: int = Field(description="Living workers that measure on it.")


class QuarantinedDevice(BaseModel):
    """A device behind an RPC tracker that failed a job, and is not measured on for a while."""

    id: str = Field(description="tracker/key/host:port")
    job: str | None = Field(description="The last job that it failed; null when that is somebody else's.")
    reason: str
    since: datetime
    until: datetime


class Devices(BaseModel):
    devices: list[Device]
    quarantined: list[QuarantinedDevice]


class Targets(BaseModel):
    targets: list[str] = Field(
        description="What can be asked for: 'native', and what the living workers' own CPUs and GPUs are."
    )
    kinds: list[str] = Field(description="Any TVM target of these kinds is taken as well.")


class Engine(BaseModel):
    name: str
    toolchains: list[str] = Field(description="Engine, TVM and LLVM versions that living workers run.")
    workers: int = Field(description="Living workers that run it.")


class Engines(BaseModel):
    engines: list[Engine]


class Health(BaseModel):
    status: str
    version: str


class Readiness(BaseModel):
    status: str
    checks: dict[str, str]


class Timing(BaseModel):
    """Seconds per run, from one interleaved benchmark."""

    mean: float
    median: float
    p90: float
    p99: float
    min: float
    max: float
    std: float
    ci_low: float | None = Field(description="Bounds of a 95 % confidence interval of the median; null of few samples.")
    ci_high: float | None
    samples: list[float]


class OutputError(BaseModel):
    output: str
    dtype: str
    max_abs: float
    max_rel: float = Field(description="Relative to the largest magnitude in the reference output.")
    atol: float
    rtol: float
    passed: bool
    top1: float | None = Field(
        description="Share of rows whose largest element is at the reference's place; null of what is no classifier's."
    )
    least_top1: float | None = Field(description="The share that was asked for.")
    not_finite: int = Field(description="Elements that are NaN or infinite where the reference's are not.")
    not_compared: bool = Field(
        description="Whether the reference has no finite number there, on any input, so that nothing was compared."
    )


class Verification(BaseModel):
    passed: bool
    precision: str = Field(description="What the build computes with, which decides the tolerances.")
    seeds: list[int]
    inputs: dict[str, str] = Field(description="Kind of values that each input was given: image, ids, mask, …")
    outputs: list[OutputError]


class FailedTask(BaseModel):
    """A tuning task of which no trial was valid."""

    position: int
    name: str
    failures: dict[str, int] = Field(description="What went wrong, to count of trials.")
    hint: str


class Contender(BaseModel):
    """One build that raced for publication."""

    name: str
    tuner: str | None
    engine: str
    precision: str
    rewritten: bool = Field(description="Whether the network was rewritten for compilers before it was built.")
    records: int = Field(description="Tuning records that it was built with.")
    trials: int = Field(description="Trials of this job that searched for it.")
    seconds_tuned: float
    seconds: float | None = Field(description="Median of a run in the benchmark; null of a build that was not in it.")
    verified: bool
    verdict: str = Field(description="Why it was left, or that it won.")


class Conditions(BaseModel):
    """What the benchmark was measured under."""

    device: str
    threads: int
    governor: str | None = Field(description="The kernel's frequency governor; null where it does not tell.")
    megahertz: tuple[float, float] | None = Field(description="Lowest and highest clock of the cores seen.")
    load: float | None = Field(description="Runnable programs beside the service's, mean over the benchmark.")
    drift: float | None = Field(description="Change of a calibration loop's time: 0.03 is 3 %.")
    attempts: int = Field(description="Benchmarks made until one was quiet enough.")
    noisy: bool = Field(description="Even the quietest was not: the comparison holds, the milliseconds are rough.")
    reasons: list[str] = Field(description="What was noisy.")


class Report(BaseModel):
    """The comparison that a job ends with."""

    timings: dict[Variant, Timing]
    verifications: dict[Variant, Verification]
    published: Variant
    speedup_over_untuned: float
    speedup_over_reference: float | None = Field(description="Null where the reference cannot run: behind RPC.")
    summary: str
    engines: dict[Variant, str] = Field(description="Toolchain of each compiled variant.")
    failed_tasks: list[FailedTask]
    choice: list[str] = Field(description="Why this engine and tuner: a sentence for each that was considered.")
    compared_with: str = Field(description="What the reference is: ONNX Runtime, or an IRModule's unscheduled build.")
    precision: str = Field(description="What the published variant computes with.")
    portfolio: list[Contender] = Field(
        description="Every build that raced: those of the benchmark, the fastest first, then the others."
    )
    conditions: Conditions | None = Field(description="Null where nothing was measured on the service's own machine.")


class LoginLink(BaseModel):
    url: str = Field(description="To be opened in a browser, once.")
    expires_at: datetime


class Quota(BaseModel):
    """Null is no limit."""

    running_jobs: int | None = Field(description="Most jobs at work at a time; more wait in the queue.")
    queued_jobs: int | None = Field(description="Most jobs in the queue; more are refused.")
    stored_bytes: int | None = Field(
        description="Most bytes of the models that the owner uploaded and the artifacts of the owner's jobs."
    )


class Token(BaseModel):
    id: str
    name: str
    owner: str
    scopes: list[Scope]
    quota: Quota
    created_at: datetime
    expires_at: datetime | None = Field(description="Null: never.")
    last_used_at: datetime | None = Field(description="To the minute; null when it never was.")
    revoked_at: datetime | None
    active: bool = Field(description="Neither revoked nor expired.")


class NewToken(Token):
    token: str = Field(description="The token's text. Nobody can ask for it again: only its digest is stored.")


class TokenPage(BaseModel):
    tokens: list[Token] = Field(description="Newest first.")
    next_page_token: str | None = Field(description="Null on the last page.")


class Usage(BaseModel):
    """What counts towards the quota right now."""

    running_jobs: int
    queued_jobs: int
    stored_bytes: int


class Caller(BaseModel):
    """What the token, or the browser's session, that made the request may do."""

    owner: str = Field(description="Whose jobs and models it makes and sees.")
    scopes: list[Scope]
    quota: Quota
    usage: Usage
    token: Token | None = Field(description="Null for the service's own token.")
