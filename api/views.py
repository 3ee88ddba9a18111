"""Domain values as the JSON of ``schemas``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel

from api import schemas
from api.jobs import placing
from domain.artifacts import Artifact
from domain.jobs import Group, Job, Placement
from domain.models import Model
from domain.tuning_tasks import TuningTask
from domain.webhooks import Delivery, Webhook
from domain.workers import Doubt, Worker

Schema = TypeVar("Schema", bound=BaseModel)


def made(kind: type[Schema], *values: object, **given: Any) -> Schema:
    """From the fields that the values have by the same names, the last one's first, and those that are given."""
    found: dict[str, Any] = {}
    for value in values:
        found |= vars(value)
    return kind.model_validate(found | given, from_attributes=True)


def model(value: Model) -> schemas.Model:
    return made(schemas.Model, value.facts, value, bytes=value.size_bytes)


def job(value: Job, of: Model, *, now: datetime, living: Sequence[Worker], held: Collection[str]) -> schemas.Job:
    """``living``: workers that could take it; ``held``: ids of jobs that their quota keeps in the queue."""
    request = value.request
    queue_end = value.started_at or value.finished_at or now
    run_end = value.finished_at or now
    return made(
        schemas.Job,
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
        run_seconds=(run_end - value.started_at).total_seconds() if value.started_at else 0.0,
    )


def doubt(value: Doubt) -> schemas.Notice:
    return made(schemas.Notice, value, details={})


def created(value: schemas.Job, webhook: Webhook | None, *, shows_secret: bool) -> schemas.CreatedJob:
    told = schemas.JobWebhook(url=webhook.url, secret=webhook.secret if shows_secret else None) if webhook else None
    return schemas.CreatedJob(**value.model_dump(), webhook=told)


def deliveries(webhook: Webhook | None, found: Sequence[Delivery]) -> schemas.Deliveries:
    return schemas.Deliveries(url=webhook.url if webhook else None, deliveries=[_delivery(one) for one in found])


def _delivery(value: Delivery) -> schemas.Delivery:
    state = "delivered" if value.delivered_at else "pending" if value.next_attempt_at else "given_up"
    return made(schemas.Delivery, value, state=state)


def group(value: Group) -> schemas.Group:
    return made(schemas.Group, value, jobs=sum(value.counts.values()))


def task(value: TuningTask) -> schemas.Task:
    extracted, best = value.extracted, value.best_latency
    return made(schemas.Task, extracted, value, best_gflops=extracted.flop / best / 1e9 if best else None)


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


def artifact(value: Artifact, *, jobs: Collection[str]) -> schemas.Artifact:
    """``jobs``: ids of those that the caller may see."""
    return made(
        schemas.Artifact,
        value,
        bytes=value.size_bytes,
        job_id=value.job_id if value.job_id in jobs else None,
        download=f"/v1/artifacts/{value.id}/download",
    )


def worker(value: Worker, *, alive: bool, jobs: Collection[str]) -> schemas.Worker:
    """``jobs``: ids of those that the caller may see."""
    return made(
        schemas.Worker,
        value,
        device_key=value.device.key,
        device=value.device.name,
        native_target=value.native_target.identity,
        toolchains=[toolchain.identity for toolchain in value.toolchains],
        current_job=value.current_job if value.current_job in jobs else None,
        busy=value.current_job is not None,
        alive=alive,
    )


def _placement(value: Placement) -> schemas.Placement:
    return schemas.Placement(
        target=value.target.identity,
        device_key=value.device.key,
        device=value.device.name,
        toolchain=value.toolchain.identity,
    )
