"""Routes for creating, listing, reading, canceling and retrying jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import AfterValidator, AwareDatetime, Field
from sqlalchemy.orm import Session

from api import connections, problems
from api import schemas as shared
from api.auth import KeyHeader, Reader, Submitter
from api.jobs import creating, planning, queueing, schemas
from api.jobs.drafts import JobBody, JobDraft
from api.jobs.requests import job_request
from api.paging import Listed
from api.response_cache import Status
from api.services import Services, ServicesDep
from domain import errors, targets
from domain.jobs import Job, JobState, Tuner
from domain.stage_results import PlanResult, StageResults
from domain.tokens import Principal
from domain.workers import Worker
from storage import (
    events,
    idempotency,
    job_queries,
    jobs,
    model_overviews,
    models,
    owners,
    quotas,
    records,
    stages,
    statements,
    tuning_tasks,
    webhooks,
    workers,
)
from storage.job_queries import JobSummary

logger = logging.getLogger(__name__)
router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.post(
    "",
    operation_id="create_job",
    status_code=202,
    response_model=schemas.CreatedJob,
    responses=problems.responses(404, 413, 422),
)
def create(
    services: ServicesDep, principal: Submitter, draft: JobBody, idempotency_key: KeyHeader = None
) -> schemas.CreatedJob:
    """Create a tuning job, which waits in the queue for a worker."""
    with services.database.transaction() as session:
        now = statements.now(session)
        made = creating.create(session, draft, principal, services.settings, key=idempotency_key, now=now)
        view = schemas.created(_view(services, session, made.job, now), made.webhook, shows_secret=made.shows_secret)
    if made.is_new:
        _ring(services, made.job)
    return view


@router.post(
    ":plan", operation_id="plan_job", response_model=schemas.Plan, responses=problems.responses(404, 413, 422, 503)
)
async def plan(request: Request, services: ServicesDep, principal: Submitter, draft: JobBody) -> schemas.Plan:
    """Show what a job for this request would do and cost, by this server's engines; creates no job.

    The first plan for a model takes as long as importing it and extracting its tasks, which the job then reuses. It
    ends with the request.
    """
    return await connections.while_connected(request, lambda left: planned(services, principal, draft, left))


def planned(services: Services, principal: Principal, draft: JobDraft, left: Callable[[], bool]) -> schemas.Plan:
    """Return the plan of ``POST /v1/jobs:plan``; ``left`` says whether its caller has left."""
    creating.asked_for(draft, services.settings)
    with services.database.reading() as session:
        whole, model = creating.complete(session, draft, principal, services.settings)
        data_set = creating.data_set_of(session, whole, principal)
        request = job_request(whole, model, services.settings, data_set=data_set)
        creating.check_cpu(session, request, services.settings)
    if request.sizes:
        number = len(request.sizes)
        raise errors.SizesNotPlanned(f"a plan has one size, and the request has {number}", details={"sizes": number})
    return planning.make(services, request, model, left)


@router.get("", operation_id="list_jobs", response_model=schemas.JobPage, responses=problems.responses(404))
def listing(services: ServicesDep, principal: Reader, wanted: Annotated[JobQuery, Query()]) -> schemas.JobPage:
    """List the jobs, newest first."""
    with services.database.reading() as session:
        found, following = jobs.page(
            session,
            owner=owners.whose(principal, wanted.owner),
            state=wanted.state,
            model_digest=owners.model(session, wanted.model, principal).digest if wanted.model else None,
            label=parse_label(wanted.label) if wanted.label else None,
            part_of=wanted.part_of,
            text=wanted.text,
            group=wanted.group,
            target=targets.canonical(wanted.target) if wanted.target else None,
            tuner=wanted.tuner,
            created_after=wanted.created_after,
            created_before=wanted.created_before,
            limit=wanted.limit,
            page_token=wanted.page_token,
        )
        of = {digest: models.get(session, digest) for digest in {job.request.model_digest for job in found}}
        now = statements.now(session)
        living = living_workers(services, session)
        held = quotas.held(session, [job.id for job in found])
        places = queueing.places(session, found, living, held, now=now)
    return schemas.JobPage(
        jobs=[
            schemas.job(job, of[job.request.model_digest], now=now, living=living, held=held, place=places.get(job.id))
            for job in found
        ],
        next_page_token=following,
    )


@router.get(
    "/{job_id}",
    operation_id="get_job",
    # The response is rendered once for all concurrent requests.
    response_class=Response,
    responses={
        200: {
            "description": "The job.",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/JobDetail"}}},
            "model": schemas.JobDetail,
        },
        **problems.responses(404),
    },
)
def answer(services: ServicesDep, principal: Reader, job_id: str) -> Response:
    """Get a job: its current state and stage; tuning tasks, times and failures may be a second old."""
    return Response(status(services, principal, job_id).body, media_type="application/json")


def one(services: Services, principal: Principal, job_id: str) -> schemas.JobDetail:
    """Return the job of ``GET /v1/jobs/{job_id}``. Raises JobNotFound."""
    return status(services, principal, job_id).detail


def summary(services: Services, principal: Principal, job_id: str) -> JobSummary:
    """Return the summary of a job. Raises JobNotFound, also for a job of another owner."""
    with services.database.reading() as session:
        found = job_queries.summary(session, job_id)
    if not principal.sees_all and found.owner != principal.owner:
        raise errors.JobNotFound(f"there is no job {job_id[:80]!r}")
    return found


def status(services: Services, principal: Principal, job_id: str) -> Status:
    seen = summary(services, principal, job_id)
    read = partial(_read_status, services, job_id)
    # What a queued job waits for depends on the workers, not on the job.
    return read() if seen.state is JobState.QUEUED else services.statuses.get((job_id, seen), read)


def _read_status(services: Services, job_id: str) -> Status:
    with services.database.reading() as session:
        return Status(_detail(services, session, job_id), last_event=events.newest(session, job_id))


def _detail(services: Services, session: Session, job_id: str) -> schemas.JobDetail:
    job = jobs.get(session, job_id)
    base = _view(services, session, job, statements.now(session))
    finished = stages.timeline(session, job_id)
    tasks = tuning_tasks.of_job(session, job_id)
    failures = records.failures_of_job(session, job_id)
    results = StageResults(stage.result for stage in finished if stage.result is not None)
    return schemas.JobDetail(
        **base.model_dump(exclude={"sizes"}),
        sizes=_sizes(session, job) if job.request.sizes else [],
        planned=schemas.planned(results.find(PlanResult)),
        choice=list(results.choice),
        timeline=[shared.fill(schemas.StageTime, stage, seconds=stage.seconds) for stage in finished],
        tasks=[schemas.task(task) for task in tasks],
        failures={error.value: count for error, count in failures.items()},
    )


def _sizes(session: Session, job: Job) -> list[schemas.SizeState]:
    parts = jobs.parts(session, job.id)
    gains = model_overviews.gains(session, [part.artifact_id for part in parts if part.artifact_id])
    return [
        schemas.size(size, part, gains.get(part.artifact_id or ""))
        for size, part in zip(job.request.sizes, parts, strict=True)
    ]


@router.post(
    "/{job_id}:cancel",
    operation_id="cancel_job",
    status_code=202,
    response_model=schemas.Job,
    responses=problems.responses(404, 409),
)
def cancel(services: ServicesDep, principal: Submitter, job_id: str) -> schemas.Job:
    """Cancel a job: a queued job ends at once, a running one is canceling until its worker has stopped."""
    with services.database.transaction() as session:
        now = statements.now(session)
        owners.job(session, job_id, principal)
        job = jobs.request_cancel(session, job_id, now=now)
        return _view(services, session, job, now)


@router.post(
    "/{job_id}:retry",
    operation_id="retry_job",
    status_code=202,
    response_model=schemas.Job,
    responses=problems.responses(404, 409, 422),
)
def retry(services: ServicesDep, principal: Submitter, job_id: str, idempotency_key: KeyHeader = None) -> schemas.Job:
    """Run a failed or canceled job again, as a new job; finished trials are reused."""
    request = idempotency.IdempotentRequest.of(idempotency_key, principal.owner, "retry", job_id)
    with services.database.transaction() as session:
        now = statements.now(session)
        old = owners.job(session, job_id, principal)
        new_id, is_new = idempotency.once(session, request, lambda: _again(session, old, principal, now), now=now)
        job = jobs.get(session, new_id)
        view = _view(services, session, job, now)
    if is_new:
        _ring(services, job)
    return view


def _again(session: Session, old: Job, principal: Principal, now: datetime) -> str:
    """Create the job again and return the new id. Raises JobIsPart, JobNotFinished and JobAlreadyFinished."""
    jobs.check_whole(old)
    if not old.state.is_final:
        raise errors.JobNotFinished(f"job {old.id} is {old.state}; only ended jobs can be retried")
    if old.state is JobState.SUCCEEDED:
        raise errors.JobAlreadyFinished(
            f"job {old.id} has succeeded", hint="Create a new job to tune the same model further."
        )
    job = jobs.create(session, old.request, now=now, owner=old.owner, token_id=principal.token_id)
    webhook = webhooks.of_job(session, old.id)
    if webhook:
        webhooks.attach(session, job.id, webhook)
    return job.id


def _view(services: Services, session: Session, job: Job, now: datetime) -> schemas.Job:
    model = models.get(session, job.request.model_digest)
    living, held = living_workers(services, session), quotas.held(session, [job.id])
    places = queueing.places(session, [job], living, held, now=now)
    return schemas.job(job, model, now=now, living=living, held=held, place=places.get(job.id))


def living_workers(services: Services, session: Session) -> list[Worker]:
    return workers.living(session, within_seconds=services.settings.worker_alive_seconds)


def _ring(services: Services, job: Job) -> None:
    """Notify workers after the commit. If this fails, idle workers still find the job."""
    try:
        services.publisher.ring()
    except errors.BrokerUnavailable as error:
        logger.warning("job %s: no message sent; a worker finds the job at its next poll: %s", job.id, error.message)


def parse_label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise errors.InvalidRequest(f"label {text[:80]!r} is not of the form NAME=VALUE")
    return name, value


_AT = "2026-01-31T12:00:00Z"


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("not a valid time in UTC") from None


_Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]


class JobQuery(Listed):
    """Filters; a job must match all that are given."""

    owner: str | None = Field(
        default=None, max_length=100, description="Admins: only objects of this owner; default all."
    )
    state: JobState | None = None
    model: str | None = Field(default=None, max_length=200, description="Id or digest.")
    label: str | None = Field(default=None, max_length=500, description="NAME=VALUE.", examples=["team=vision"])
    part_of: str | None = Field(
        default=None,
        max_length=200,
        description="The parts of this job, one for each of its sizes; else none is listed.",
    )
    group: str | None = Field(default=None, max_length=200, description="The group that the jobs were created in.")
    target: str | None = Field(
        default=None,
        max_length=1000,
        description="The target as requested or as resolved by a worker; without a thread count it matches any.",
        examples=["llvm -mcpu=znver3"],
    )
    tuner: Tuner | None = Field(default=None, description="As requested.")
    created_after: _Instant | None = Field(default=None, description="At this time or later.", examples=[_AT])
    created_before: _Instant | None = Field(default=None, description="Earlier.", examples=[_AT])
    text: str | None = Field(
        default=None,
        max_length=200,
        description="Part of the model name, the group or a label's value, or a prefix of the job's id.",
    )
