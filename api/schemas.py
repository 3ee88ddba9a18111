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
    dtype: str = Field(description="numpy name: float32, int64, …")
    shape: list[int | str | None] = Field(description="Sizes; a dynamic dimension is its symbol, or null.")


class Model(BaseModel):
    id: str
    digest: str = Field(description="sha256 of the uploaded bytes, hex.")
    name: str
    format: ModelFormat
    bytes: int
    inputs: list[Tensor]
    outputs: list[Tensor]
    opset: int = Field(description="ONNX opset; 0 for an IRModule.")
    ir_version: int
    operators: dict[str, int] = Field(description="Operators with their counts; for an IRModule its function.")
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
    owner: str = Field(description="Owner; admins see the jobs of all owners.")
    state: JobState
    stage: Stage | None = Field(description="The current stage, or the last one reached.")
    model: str = Field(description="The model's id.")
    model_digest: str
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
    budget: Budget
    measure: dict[str, Any] = Field(description="How trials are measured, as requested or by default.")
    tuner_options: dict[str, Any] = Field(
        description="As requested or by default; a tuner ignores options of other tuners."
    )
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
        description="Why a queued job does not start. no_worker: no live worker can run it; it stays queued until "
        "one registers. details.missing names the need: worker, device, machine, cpu, engine or tracker."
    )
    waits_for: str | None = Field(
        description="What this queued job needs that no live worker has, or that its token's limit of running jobs "
        "is reached; null when a worker can claim it."
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
        description="Secret that signs its messages; shown only in the response to the request that set the webhook."
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
    next_attempt_at: datetime | None = Field(description="Null once the message is delivered or given up.")
    delivered_at: datetime | None
    last_status: int | None = Field(description="HTTP status of the last response.")
    last_error: str | None


class Deliveries(BaseModel):
    url: str | None = Field(description="Null for a job without a webhook.")
    deliveries: list[Delivery] = Field(description="Oldest first; empty before the job has ended.")


class JobPage(BaseModel):
    jobs: list[Job] = Field(description="Newest first.")
    next_page_token: str | None = Field(description="Null on the last page.")


class Group(BaseModel):
    """Jobs that were created with the same group by one owner."""

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
    """What the plan stage came to; see the report for why in the end."""

    tuner: Tuner = Field(description="The leading tuner.")
    tasks: int
    tasks_covered: int = Field(description="Tasks that need no trials.")
    trials_on_record: int
    records_passed_over: dict[str, int] = Field(
        description="Stored records that cannot be used, by what differs: toolchain, device or target."
    )
    elsewhere: dict[str, str] = Field(description="Workloads that other jobs are searching, with their jobs.")


class JobDetail(Job):
    planned: Planned | None = Field(description="Null before the plan stage ends.")
    choice: list[str] = Field(description="Why this engine and tuner were chosen, as far as decided.")
    timeline: list[StageTime] = Field(description="The finished stages, in order.")
    tasks: list[Task]
    failures: dict[str, int] = Field(description="Failed trials of the whole job by kind of failure.")


class TunerPlan(BaseModel):
    """What tuning with one tuner would take."""

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
    failure: Failure | None
    tuners: list[TunerPlan]
    refusals: dict[Tuner, Failure] = Field(description="Tuners that cannot run the request, and why.")


class Plan(BaseModel):
    """What a job for this request would do. Nothing was queued."""

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


class Artifact(BaseModel):
    id: str
    digest: str = Field(description="sha256 of the bundle's bytes, hex; also its strong ETag.")
    bytes: int
    job_id: str | None = Field(description="The job that published it first; null if it has another owner.")
    model_digest: str
    input_shapes: dict[str, list[int]]
    target: str
    device_key: str
    toolchain: str
    precision: str
    bundle_format: str
    verified: bool = Field(description="False if it was built for a machine on which it could not be run.")
    report: Report
    download: str = Field(description="Path of the bundle's bytes on this server.")
    created_at: datetime


class Deletion(BaseModel):
    id: str
    gone: bool = Field(description="False if the file is kept because others uploaded the same model.")


class ArtifactPage(BaseModel):
    artifacts: list[Artifact] = Field(description="Newest first.")
    next_page_token: str | None = Field(description="Null on the last page.")


class Best(BaseModel):
    artifact: Artifact
    why: str = Field(description="Why this artifact was chosen, in a sentence.")


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
    accelerators: list[Accelerator] = Field(description="GPUs; a worker with a GPU runs only CUDA jobs.")
    toolchains: list[str]
    current_job: str | None = Field(description="Null when idle, or if the job has another owner.")
    busy: bool = Field(description="Whether it runs a job of any owner.")
    alive: bool
    release: str = Field(description="Release of the application; empty for old workers that do not report it.")
    trackers: list[str] | None = Field(description="RPC trackers that it may use; null: any.")
    clock_ahead: float | None = Field(description="Seconds by which its host's clock is ahead of the database's.")
    started_at: datetime
    last_seen_at: datetime


class Workers(BaseModel):
    workers: list[Worker] = Field(description="Longest-serving first.")
    warnings: list[Notice] = Field(
        description="workers_differ: some live workers run another release than this server. clock_differs: "
        "host clocks differ from the database's."
    )
    next_page_token: str | None = Field(description="Null on the last page.")


class Device(BaseModel):
    key: str
    name: str
    kind: Literal["cpu", "gpu"]
    threads: int
    workers: int = Field(description="Live workers that measure on it.")


class QuarantinedDevice(BaseModel):
    """A device behind an RPC tracker that failed a job, and is not measured on for a while."""

    id: str = Field(description="tracker/key/host:port")
    job: str | None = Field(description="The last job that it failed; null if it has another owner.")
    reason: str
    since: datetime
    until: datetime


class Devices(BaseModel):
    devices: list[Device]
    quarantined: list[QuarantinedDevice]


class Targets(BaseModel):
    targets: list[str] = Field(description="Suggested targets: 'native' and those of the live workers' CPUs and GPUs.")
    kinds: list[str] = Field(description="Any TVM target of these kinds is accepted as well.")


class Engine(BaseModel):
    name: str
    toolchains: list[str] = Field(description="Engine, TVM and LLVM versions that live workers run.")
    workers: int = Field(description="Live workers that run it.")


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
    ci_low: float | None = Field(
        description="Bounds of a 95 % confidence interval of the median; null with few samples."
    )
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
        description="Share of rows whose largest element is at the reference's index; null if not a classifier."
    )
    least_top1: float | None = Field(description="The required share.")
    not_finite: int = Field(description="Elements that are NaN or infinite where the reference is finite.")
    not_compared: bool = Field(
        description="True if the reference has no finite number there on any input, so nothing was compared."
    )


class Verification(BaseModel):
    passed: bool
    precision: str = Field(description="Precision of the build, which decides the tolerances.")
    seeds: list[int]
    inputs: dict[str, str] = Field(description="Kind of values used for each input: image, ids, mask, …")
    outputs: list[OutputError]


class FailedTask(BaseModel):
    """A tuning task of which no trial was valid."""

    position: int
    name: str
    failures: dict[str, int] = Field(description="Failed trials by kind of failure.")
    hint: str


class Contender(BaseModel):
    """One build that raced for publication."""

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
    """What the benchmark was measured under."""

    device: str
    threads: int
    governor: str | None = Field(description="The kernel's frequency governor; null if unknown.")
    megahertz: tuple[float, float] | None = Field(description="Lowest and highest clock of the cores seen.")
    load: float | None = Field(description="Mean number of other runnable processes during the benchmark.")
    drift: float | None = Field(description="Change of a calibration loop's time: 0.03 is 3 %.")
    attempts: int = Field(description="Number of benchmarks run until one was quiet enough.")
    noisy: bool = Field(description="True if all were noisy: the comparison holds, the milliseconds are rough.")
    reasons: list[str] = Field(description="What was noisy.")


class Report(BaseModel):
    """The comparison that a job ends with."""

    timings: dict[Variant, Timing]
    verifications: dict[Variant, Verification]
    published: Variant
    speedup_over_untuned: float
    speedup_over_reference: float | None = Field(description="Null if the reference cannot run (RPC).")
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


class LoginLink(BaseModel):
    url: str = Field(description="Open it in a browser; it works once.")
    expires_at: datetime


class Quota(BaseModel):
    """Null is no limit."""

    running_jobs: int | None = Field(description="Maximum number of running jobs; more wait in the queue.")
    queued_jobs: int | None = Field(description="Maximum number of queued jobs; more are refused.")
    stored_bytes: int | None = Field(description="Maximum total size of the owner's models and artifacts.")


class Token(BaseModel):
    id: str
    name: str
    owner: str
    scopes: list[Scope]
    quota: Quota
    created_at: datetime
    expires_at: datetime | None = Field(description="Null: never.")
    last_used_at: datetime | None = Field(description="Rounded to the minute; null: never.")
    revoked_at: datetime | None
    active: bool = Field(description="Neither revoked nor expired.")


class NewToken(Token):
    token: str = Field(description="The token itself, shown only once: the server stores its digest.")


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

    owner: str = Field(description="Owner of the jobs and models that it creates and sees.")
    scopes: list[Scope]
    quota: Quota
    usage: Usage
    token: Token | None = Field(description="Null for the server's own token.")
