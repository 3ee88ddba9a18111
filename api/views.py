"""Domain values as the JSON of ``schemas``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from api import report_schemas, schemas
from api.jobs import placing
from domain import errors
from domain.artifacts import Artifact, Report
from domain.fleet import Doubt
from domain.groups import Group
from domain.jobs import Job, Placement
from domain.models import Model
from domain.tensors import TensorSpec
from domain.tuning_tasks import TuningTask
from domain.webhooks import Delivery, Webhook
from domain.workers import Worker


def model(value: Model) -> schemas.Model:
    facts = value.facts
    return schemas.Model(
        id=value.id,
        digest=value.digest,
        name=value.name,
        format=facts.format,
        bytes=value.size_bytes,
        inputs=[_tensor(spec) for spec in facts.inputs],
        outputs=[_tensor(spec) for spec in facts.outputs],
        opset=facts.opset,
        ir_version=facts.ir_version,
        operators=facts.operators,
        parameters=facts.parameters,
        created_at=value.created_at,
    )


def job(value: Job, of: Model, *, now: datetime, living: Sequence[Worker], held: Collection[str]) -> schemas.Job:
    """``living``: workers that could take it; ``held``: ids of jobs that their quota keeps in the queue."""
    request = value.request
    queue_end = value.started_at or value.finished_at or now
    run_end = value.finished_at or now
    return schemas.Job(
        id=value.id,
        owner=value.owner,
        state=value.state,
        stage=value.stage,
        model=of.id,
        model_digest=of.digest,
        model_name=of.name,
        target=request.target,
        threads=request.threads,
        tuner=request.tuner,
        runner=request.runner,
        rpc=schemas.Rpc(**asdict(request.rpc)) if request.rpc else None,
        device=request.device,
        precision=request.precision,
        accuracy=schemas.Accuracy(**asdict(request.accuracy)),
        bundle_format=request.bundle_format,
        budget=schemas.Budget(trials=request.budget.trials, seconds=request.budget.seconds),
        measure=asdict(request.measure),
        tuner_options=asdict(request.tuner_options),
        input_shapes={name: list(shape) for name, shape in request.input_shapes.items()},
        priority=request.priority,
        labels=request.labels,
        group=request.group,
        placement=_placement(value.placement) if value.placement else None,
        trials_done=value.trials_done,
        trials_planned=value.trials_planned,
        attempts=value.attempts,
        queue_seconds=(queue_end - value.created_at).total_seconds(),
        warnings=[_warning(one) for one in placing.warnings(value, living)],
        waits_for=placing.waits_for(value, living, held),
        run_seconds=(run_end - value.started_at).total_seconds() if value.started_at else 0.0,
        failure=schemas.Failure(**asdict(value.failure)) if value.failure else None,
        artifact_id=value.artifact_id,
        created_at=value.created_at,
        started_at=value.started_at,
        finished_at=value.finished_at,
    )


def _warning(error: errors.TunesmithError) -> schemas.Notice:
    return schemas.Notice(code=error.code, message=error.message, hint=error.hint, details=error.details)


def doubt(value: Doubt) -> schemas.Notice:
    return schemas.Notice(code=value.code, message=value.message, hint=value.hint, details={})


def created(value: schemas.Job, webhook: Webhook | None, *, shows_secret: bool) -> schemas.CreatedJob:
    told = schemas.JobWebhook(url=webhook.url, secret=webhook.secret if shows_secret else None) if webhook else None
    return schemas.CreatedJob(**value.model_dump(), webhook=told)


def deliveries(webhook: Webhook | None, found: Sequence[Delivery]) -> schemas.Deliveries:
    return schemas.Deliveries(url=webhook.url if webhook else None, deliveries=[_delivery(one) for one in found])


def _delivery(value: Delivery) -> schemas.Delivery:
    return schemas.Delivery(
        id=value.id,
        state="delivered" if value.delivered_at else "pending" if value.next_attempt_at else "given_up",
        attempts=value.attempts,
        created_at=value.created_at,
        next_attempt_at=value.next_attempt_at,
        delivered_at=value.delivered_at,
        last_status=value.last_status,
        last_error=value.last_error,
    )


def group(value: Group) -> schemas.Group:
    return schemas.Group(
        name=value.name,
        owner=value.owner,
        jobs=sum(value.counts.values()),
        counts=dict(value.counts),
        newest_job=value.newest_job,
        newest_at=value.newest_at,
    )


def task(value: TuningTask) -> schemas.Task:
    extracted = value.extracted
    best = value.best_latency
    return schemas.Task(
        **asdict(extracted),
        trials_planned=value.trials_planned,
        trials_done=value.trials_done,
        best_latency=best,
        best_gflops=extracted.flop / best / 1e9 if best else None,
        failures=value.failures,
    )


def planned(outcome: Mapping[str, Any] | None) -> schemas.Planned | None:
    """Of the plan stage's outcome; those of older releases say no tuner."""
    if outcome is None or "tuner" not in outcome:
        return None
    return schemas.Planned(
        tuner=outcome["tuner"],
        tasks=outcome["tasks"],
        tasks_covered=outcome["covered"],
        trials_on_record=outcome.get("trials_on_record", 0),
        records_passed_over=outcome.get("passed_over", {}),
        elsewhere=outcome.get("elsewhere", {}),
    )


def report(value: Report) -> report_schemas.Report:
    return report_schemas.Report(
        timings={variant: report_schemas.Timing(**asdict(timing)) for variant, timing in value.timings.items()},
        verifications={
            variant: report_schemas.Verification(
                passed=verification.passed,
                precision=verification.precision,
                seeds=list(verification.seeds),
                inputs=verification.inputs,
                outputs=[report_schemas.OutputError(**asdict(output)) for output in verification.outputs],
            )
            for variant, verification in value.verifications.items()
        },
        published=value.published,
        speedup_over_untuned=value.speedup_over_untuned,
        speedup_over_reference=value.speedup_over_reference,
        summary=value.summary,
        engines=value.engines,
        failed_tasks=[report_schemas.FailedTask(**asdict(task)) for task in value.failed_tasks],
        choice=list(value.choice),
        compared_with=value.compared_with,
        precision=value.precision,
        portfolio=[report_schemas.Contender(**asdict(contender)) for contender in value.portfolio],
        conditions=report_schemas.Conditions(**asdict(value.conditions)) if value.conditions else None,
    )


def artifact(value: Artifact, *, jobs: Collection[str]) -> schemas.Artifact:
    """``jobs``: ids of those that the caller may see."""
    return schemas.Artifact(
        id=value.id,
        digest=value.digest,
        bytes=value.size_bytes,
        job_id=value.job_id if value.job_id in jobs else None,
        model_digest=value.model_digest,
        input_shapes={name: list(shape) for name, shape in value.input_shapes.items()},
        target=value.target,
        device_key=value.device_key,
        toolchain=value.toolchain,
        precision=value.precision,
        bundle_format=value.bundle_format,
        verified=value.verified,
        report=report(value.report),
        download=f"/v1/artifacts/{value.id}/download",
        created_at=value.created_at,
    )


def worker(value: Worker, *, alive: bool, jobs: Collection[str]) -> schemas.Worker:
    """``jobs``: ids of those that the caller may see."""
    return schemas.Worker(
        id=value.id,
        hostname=value.hostname,
        pid=value.pid,
        device_key=value.device.key,
        device=value.device.name,
        native_target=value.native_target.identity,
        accelerators=[schemas.Accelerator(key=device.key, name=device.name) for device in value.accelerators],
        toolchains=[toolchain.identity for toolchain in value.toolchains],
        current_job=value.current_job if value.current_job in jobs else None,
        busy=value.current_job is not None,
        alive=alive,
        release=value.release,
        trackers=None if value.trackers is None else list(value.trackers),
        clock_ahead=value.clock_ahead,
        started_at=value.started_at,
        last_seen_at=value.last_seen_at,
    )


def _tensor(spec: TensorSpec) -> schemas.Tensor:
    return schemas.Tensor(name=spec.name, dtype=spec.dtype, shape=list(spec.shape))


def _placement(value: Placement) -> schemas.Placement:
    return schemas.Placement(
        target=value.target.identity,
        device_key=value.device.key,
        device=value.device.name,
        toolchain=value.toolchain.identity,
    )
