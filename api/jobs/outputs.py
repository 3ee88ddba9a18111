"""Routes of a job's output: events, log, records, report and profile."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from fastapi.sse import EventSourceResponse
from sqlalchemy.orm import Session

from api import problems
from api import schemas as shared
from api.auth import Reader, is_still_valid
from api.jobs import schemas
from api.records import record_files
from api.services import Services, ServicesDep
from domain import errors
from domain.jobs import Job, JobState
from domain.profiles import Profile
from domain.stage_results import BenchmarkResult
from storage import artifacts, events, job_logs, owners, stages
from storage.record_filters import RecordFilter

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"])

LOG_OFFSET_HEADER = "Tunesmith-Next-Offset"
_LAST_ID = 2**63 - 1
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Disables buffering in proxies."""
_EVENT = {
    "type": "object",
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}, "id": {"type": "string"}},
}
_LOG_TAIL_BYTES = 64 * 1024
_LOG_MOST_BYTES = 1024 * 1024


def _job(services: ServicesDep, principal: Reader, job_id: str) -> Job:
    with services.database.reading() as session:
        return owners.job(session, job_id, principal)


_JobDep = Annotated[Job, Depends(_job)]


def _place(
    services: ServicesDep,
    job: _JobDep,
    last_event_id: Annotated[int | None, Header(ge=0, le=_LAST_ID, description="Continue after this event.")] = None,
    after: Annotated[
        int, Query(ge=0, le=_LAST_ID, description="The same as a parameter: browsers cannot send the header at first.")
    ] = 0,
) -> int | None:
    """Return the id of the event to continue after; None if none can follow."""
    last_id = after if last_event_id is None else last_event_id
    with services.database.reading() as session:
        newest = events.newest(session, job.id)
    if job.state.is_final and last_id >= newest:
        return None
    # All watchers of a job share what is read of it, which must not start after events to come.
    return min(last_id, newest)


@router.get(
    "/events",
    operation_id="watch_job",
    status_code=None,
    # Not EventSourceResponse, with which FastAPI would call a generator itself.
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The events; comments keep an idle stream open.",
            "content": {"text/event-stream": {"itemSchema": _EVENT}},
        },
        204: {"description": "The job has ended and there are no further events; a browser stops reconnecting."},
        **problems.responses(404),
    },
)
async def watch(
    request: Request, services: ServicesDep, job: _JobDep, last_id: Annotated[int | None, Depends(_place)]
) -> Response:
    """Stream server-sent events of kind state, stage, progress and note until the job ends."""
    if last_id is None:
        return Response(status_code=204)
    following = services.events.watch(job.id, last_id, is_allowed=partial(is_still_valid, request))
    return EventSourceResponse(_counted(services, following), headers=_UNBUFFERED)


async def _counted(services: Services, following: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    with services.metrics.watching():
        async with contextlib.aclosing(following):
            async for event in following:
                yield event


@router.get(
    "/log",
    operation_id="get_job_log",
    response_class=PlainTextResponse,
    responses={
        200: {
            "description": "Output of the engines; empty before one has started. "
            "For a worker on another host, the last 256 KiB, a few seconds late.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
            "headers": {
                LOG_OFFSET_HEADER: {
                    "description": "Offset at which to continue reading.",
                    "schema": {"type": "integer"},
                },
            },
        },
        **problems.responses(404),
    },
)
def log(
    services: ServicesDep,
    job: _JobDep,
    offset: Annotated[int | None, Query(ge=0, description="Offset of the first byte; default the last 64 KiB.")] = None,
) -> Response:
    """Get the end of the engine log, or up to 1 MiB from an offset."""
    start, content = read_log(services, job.id, offset)
    headers = {LOG_OFFSET_HEADER: str(start + len(content))}
    return PlainTextResponse(content.decode(errors="replace"), headers=headers)


@router.get(
    "/records",
    operation_id="get_job_records",
    response_class=PlainTextResponse,
    responses={
        200: {
            "description": "One line per trial, in the tuner's own format (AutoTVM: JSON).",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **problems.responses(404),
    },
)
def native_records(services: ServicesDep, job: _JobDep) -> Response:
    """Stream the job's trials in the tuner's own format."""
    lines = record_files.lines(services.database, RecordFilter(job_id=job.id))
    return StreamingResponse(lines, media_type="text/plain")


@router.get(
    "/report",
    operation_id="get_job_report",
    response_model=schemas.Report,
    responses=problems.responses(404, 409),
)
def report(services: ServicesDep, job: _JobDep) -> schemas.Report:
    """Get the job's final comparison of reference, untuned and tuned."""
    if not job.state.is_final:
        raise errors.JobNotFinished(f"job {job.id} is {job.state} and has no report yet")
    with services.database.reading() as session:
        artifact = artifacts.of_job(session, job.id)
    if artifact is None or job.state is not JobState.SUCCEEDED:
        raise errors.ArtifactNotFound(
            f"job {job.id} has {job.state} and published nothing", hint=f"To see the reason: tunesmith status {job.id}."
        )
    speedup = artifact.report.runtime_speedup_over_untuned
    return shared.fill(schemas.Report, artifact.report, runtime_speedup_over_untuned=speedup)


@router.get(
    "/profile",
    operation_id="get_job_profile",
    response_model=schemas.Profile,
    responses=problems.responses(404, 409),
)
def profile(services: ServicesDep, job: _JobDep) -> schemas.Profile:
    """Get the published build's time by operator, compared with ONNX Runtime's, the largest loss first."""
    if not job.state.is_final:
        raise errors.JobNotFinished(f"job {job.id} is {job.state} and has no profile yet")
    with services.database.reading() as session:
        found = profile_of(session, job)
    if isinstance(found, str):
        raise errors.ArtifactNotFound(
            f"job {job.id} has no profile: {found}",
            hint="Only libraries that are timed on the worker's CPU are profiled.",
        )
    return shared.fill(schemas.Profile, found)


def profile_of(session: Session, job: Job) -> Profile | str:
    """Return a job's profile, or why it has none."""
    if job.request.sizes:
        return "each of its sizes has one, in the size's own job"
    result = stages.result(session, job.id, BenchmarkResult)
    return (result and (result.profile or result.unprofiled)) or "it was not benchmarked"


def read_log(services: Services, job_id: str, offset: int | None) -> tuple[int, bytes]:
    """Return the offset and content of the log: from the local file, or from the database if a remote worker stored
    more."""
    path = services.logs / f"{job_id}.log"
    size = 0
    with contextlib.suppress(FileNotFoundError):
        size = path.stat().st_size
    with services.database.reading() as session:
        if job_logs.size(session, job_id) > size:
            return _end_of(job_logs.read(session, job_id), offset)
    return _end_of_file(path, size, offset)


def _end_of(tail: job_logs.Tail, offset: int | None) -> tuple[int, bytes]:
    wanted = tail.size - _LOG_TAIL_BYTES if offset is None else offset
    start = min(max(wanted, tail.start), tail.size)
    return start, tail.content[start - tail.start :]


def _end_of_file(path: Path, size: int, offset: int | None) -> tuple[int, bytes]:
    if not size:
        return 0, b""
    start = max(0, size - _LOG_TAIL_BYTES) if offset is None else min(offset, size)
    with path.open("rb") as file:
        file.seek(start)
        return start, file.read(_LOG_MOST_BYTES)
