"""Ready-made values of the vocabulary."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from domain import ids
from domain.artifacts import Artifact, OutputError, Report, Timing, Variant, Verification
from domain.jobs import Budget, Job, JobRequest, Lease, Placement
from domain.models import Model, ModelFacts, TensorSpec
from domain.records import ImportedRecord, Record, RecordKey, TrialError
from domain.shared_rounds import Offer
from domain.targets import Device, Target, Toolchain
from domain.tuning_tasks import ExtractedTask, TuningTask
from domain.workers import Worker
from storage import jobs, models
from storage.tables import digest_of

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DIGEST = digest_of("a model")

TARGET = Target(text="llvm -mcpu=znver3", threads=2)
DEVICE = Device(key="AMD EPYC 7R13 avx2 t2", name="AMD EPYC 7R13", threads=2)
TOOLCHAIN = Toolchain(engine="relay", tvm="0.19.0", llvm="22.1.8")
PLACEMENT = Placement(target=TARGET, device=DEVICE, toolchain=TOOLCHAIN)
PLACED = {"target": TARGET.identity, "device_key": DEVICE.key, "toolchain": TOOLCHAIN.identity}

FACTS = ModelFacts(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 3, None, 192)),),
    outputs=(TensorSpec(name="softmax", dtype="float32", shape=(None, 2)),),
    opset=11,
    ir_version=7,
    operators={"Conv": 53, "com.microsoft::FusedConv": 1},
    parameters=137_250,
)


def add_model(session: Session, digest: str = DIGEST, *, now: datetime = NOW) -> Model:
    model, _ = models.add(session, digest=digest, name="cls.onnx", size_bytes=585_532, facts=FACTS, now=now)
    return model


def add_job(session: Session, *, now: datetime = NOW, **request: Any) -> Job:
    digest = request.pop("model_digest", DIGEST)
    add_model(session, digest)
    return jobs.create(session, JobRequest(model_digest=digest, budget=Budget(trials=64), **request), now=now)


def leased(session: Session, job_id: str | None = None) -> tuple[str, Lease]:
    """Claim a job, by default a new one; return its id and the lease."""
    job = jobs.claim(session, job_id or add_job(session).id, worker_id="w", now=NOW, lease_seconds=60, max_attempts=3)
    assert job is not None
    assert job.lease is not None
    return job.id, job.lease


def key(workload: str = "dense", **changes: str) -> RecordKey:
    return RecordKey(workload_key=workload, **(PLACED | changes))


def record(
    workload: str = "dense",
    *latencies: float,
    schedule: str = "{}",
    error: TrialError | None = None,
    job_id: str = "j-1",
    trial_number: int = 0,
    tuner: str = "autotvm",
    calibration: float | None = None,
    **changes: str,
) -> Record:
    return Record(
        key=key(workload, **changes),
        tuner=tuner,
        schedule=schedule,
        schedule_digest=digest_of(schedule),
        latencies=latencies,
        error=error,
        error_message="it broke" if error else None,
        trial_number=trial_number,
        job_id=job_id,
        worker_id="host:1:2",
        finished_at=NOW,
        calibration=calibration,
    )


def imported(
    workload: str = "dense",
    *latencies: float,
    schedule: str = "{}",
    owner: str = "local",
    error: TrialError | None = None,
    tuner: str = "autotvm",
    **changes: str,
) -> ImportedRecord:
    return ImportedRecord(
        key=key(workload, **changes),
        tuner=tuner,
        schedule=schedule,
        schedule_digest=digest_of(schedule),
        latencies=latencies,
        error=error,
        finished_at=NOW,
        owner=owner,
        imported_at=NOW,
    )


def task(job_id: str, position: int = 0, workload: str = "dense", trials_planned: int = 16) -> TuningTask:
    extracted = ExtractedTask(
        position=position,
        name="dense_pack.x86",
        workload_key=workload,
        description="dense 1×512 ∗ 10×512",
        weight=2,
        flop=10_240.0,
        space_size=2**40,
        alternatives=0,
    )
    return TuningTask(job_id=job_id, extracted=extracted, trials_planned=trials_planned)


def timing(median: float) -> Timing:
    return Timing(
        samples=(median, median), mean=median, median=median, p90=median, p99=median, min=median, max=median, std=0.0
    )


def report(*, tuned: float = 0.5e-3, untuned: float = 1e-3) -> Report:
    published = Variant.TUNED if tuned < untuned else Variant.UNTUNED
    output = OutputError(
        output="softmax", dtype="float32", max_abs=1e-7, max_rel=1e-6, atol=1e-5, rtol=1e-4, passed=True
    )
    variants = {Variant.REFERENCE: 0.8e-3, Variant.UNTUNED: untuned, Variant.TUNED: tuned}
    return Report(
        timings={variant: timing(median) for variant, median in variants.items()},
        verifications={
            variant: Verification(variant=variant, seeds=(0, 1, 2), outputs=(output,))
            for variant in (Variant.UNTUNED, Variant.TUNED)
        },
        published=published,
        speedup_over_untuned=max(1.0, untuned / tuned),
        speedup_over_reference=0.8e-3 / min(tuned, untuned),
        summary="tuned runs twice as fast as untuned",
    )


def artifact(job_id: str, text: str = "a bundle", *, now: datetime = NOW, **changes: Any) -> Artifact:
    digest = digest_of(text)
    values: dict[str, Any] = {
        "id": ids.artifact(digest),
        "digest": digest,
        "size_bytes": 1_000,
        "job_id": job_id,
        "model_digest": DIGEST,
        "input_shapes": {"x": (1, 3, 48, 192)},
        **PLACED,
        "precision": "f32",
        "report": report(),
        "created_at": now,
    }
    return Artifact(**(values | changes))


def worker(identifier: str = "host:1:2", *, now: datetime = NOW, current_job: str | None = None) -> Worker:
    return Worker(
        id=identifier,
        hostname="host",
        pid=1,
        device=DEVICE,
        native_target=TARGET,
        toolchains=(TOOLCHAIN,),
        current_job=current_job,
        started_at=NOW,
        last_seen_at=now,
    )


def offer(workload: str = "dense", **changes: Any) -> Offer:
    told: dict[str, Any] = {
        "workload_key": workload,
        "tuner": "autotvm",
        **PLACED,
        "request": {"target": TARGET.text, "threads": TARGET.threads},
        "trials": 8,
        "first_trial": 0,
        "seconds_limit": None,
        "lock_place": "leader's",
    }
    return Offer(**(told | changes))
