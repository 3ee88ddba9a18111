"""The page of one job, the data of its plots, and its actions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from sqlalchemy.orm import Session

from api import auth
from api.artifacts import routes as published
from api.dashboard import rendering
from api.jobs import outputs, routes, schemas
from api.jobs.pages import convergence, job_profile, job_progress
from api.jobs.pages.convergence import Convergence, Plot
from api.jobs.pages.job_profile import ProfileView
from api.jobs.pages.job_progress import JobProgress
from api.jobs.pages.job_tables import (
    ErrorLine,
    StageLine,
    TaskLine,
    TimingRow,
    error_lines,
    stage_lines,
    task_lines,
    timing_rows,
)
from api.response_cache import TTLCache
from api.services import Services, ServicesDep
from api.webhooks import routes as hooks
from domain import errors
from domain.artifacts import Artifact
from domain.blobs import BlobStore
from domain.digests import BlobDigest
from domain.jobs import EventKind, Job, JobEvent
from domain.tokens import Principal, Scope
from domain.webhooks import Delivery
from storage import artifacts, owners, webhooks
from tuner.results import bundle
from tunesmith import archives

router = APIRouter(prefix="/jobs/{job_id}", include_in_schema=False)

_LOG_LINES = 60
_SEE_OTHER = 303
_NO_STORE = {"Cache-Control": "no-store"}


@dataclass(frozen=True, kw_only=True)
class JobView:
    job: schemas.JobDetail
    progress: JobProgress | None
    """None unless the job is running."""
    doing: str
    """What the current stage has done so far, operator by operator; may be empty."""
    stages: list[StageLine]
    tasks: list[TaskLine]
    notes: list[str]
    errors: list[ErrorLine]
    """Of a job whose builds all failed the verification."""
    found: Convergence
    plot: Plot
    artifact: Artifact | None
    comparison: list[TimingRow]
    profile: ProfileView | None
    unprofiled: str
    """Why there is no profile; empty if there is one."""
    files: list[BundledFile]
    webhook: str | None
    """URL that is notified when the job ends."""
    deliveries: list[Delivery]
    log: str
    last_event: int
    """Id of the last event that the whole page includes; watchers continue after it."""
    may_change: bool


def _curve_cache(request: Request) -> TTLCache[Convergence]:
    cache: TTLCache[Convergence] = request.app.state.curve_cache
    return cache


CurveCacheDep = Annotated[TTLCache[Convergence], Depends(_curve_cache)]


@router.get("")
def page(
    request: Request, services: ServicesDep, principal: auth.Reader, cache: CurveCacheDep, job_id: str
) -> Response:
    """Return the page; for htmx and our own script only the parts that change while a job runs."""

    def rendered(template: str) -> str:
        return rendering.text(request, template, view=look(services, principal, cache, job_id))

    if not rendering.is_fragment(request):
        return HTMLResponse(rendered("job.html"), headers=_NO_STORE)
    # Rendered once for all requests of the same moment.
    parts: TTLCache[str] = request.app.state.fragment_cache
    key = (job_id, routes.summary(services, principal, job_id), Scope.SUBMIT in principal.scopes)
    return HTMLResponse(parts.get(key, lambda: rendered("job_live.html")), headers=_NO_STORE)


@router.get("/curve.json")
def curve(services: ServicesDep, principal: auth.Reader, cache: CurveCacheDep, job_id: str) -> JSONResponse:
    """Return the points of the plots so far."""
    with services.database.reading() as session:
        found = _curve(cache, session, owners.job(session, job_id, principal))
    return JSONResponse(convergence.as_json(found), headers=_NO_STORE)


def _curve(cache: TTLCache[Convergence], session: Session, job: Job) -> Convergence:
    return cache.get((job.id, job.state, job.stage), partial(convergence.read, session, job))


@router.post("/cancel")
def cancel(services: ServicesDep, principal: auth.Submitter, job_id: str) -> RedirectResponse:
    routes.cancel(services, principal, job_id)
    return RedirectResponse(f"/jobs/{job_id}", status_code=_SEE_OTHER)


@router.post("/retry")
def retry(services: ServicesDep, principal: auth.Submitter, job_id: str) -> RedirectResponse:
    """Retry a job and redirect to the new one."""
    made = routes.retry(services, principal, job_id)
    return RedirectResponse(f"/jobs/{made.id}", status_code=_SEE_OTHER)


@router.post("/resend")
def resend(services: ServicesDep, principal: auth.Submitter, job_id: str) -> RedirectResponse:
    hooks.resend(services, principal, job_id)
    return RedirectResponse(f"/jobs/{job_id}", status_code=_SEE_OTHER)


@router.post("/delete-bundle")
def delete_bundle(services: ServicesDep, principal: auth.Submitter, job_id: str) -> RedirectResponse:
    """Delete the bundle of a job, unless it is already deleted. Raises ArtifactNotFound for a job without one."""
    job = routes.one(services, principal, job_id)
    if job.artifact_id is None:
        raise errors.ArtifactNotFound(f"job {job.id} has no bundle", hint="Only published bundles can be deleted.")
    published.remove(services, principal, job.artifact_id)
    return RedirectResponse(f"/jobs/{job.id}#deleted", status_code=_SEE_OTHER)


def look(services: Services, principal: Principal, cache: TTLCache[Convergence], job_id: str) -> JobView:
    """Collect the data of the page. Raises JobNotFound."""
    status = routes.status(services, principal, job_id)
    job = status.detail
    with services.database.reading() as session:
        own = owners.job(session, job_id, principal)
        found, progress = _curve(cache, session, own), job_progress.of_jobs(session, [own])
        artifact = artifacts.of_job(session, job_id) if job.artifact_id else None
        profile = outputs.profile_of(session, own) if artifact else ""
        webhook, deliveries = webhooks.of_job(session, job_id), webhooks.deliveries(session, job_id)
    level = found.estimator.level
    return JobView(
        job=job,
        progress=progress.get(job_id),
        doing=_doing(found.events),
        stages=stage_lines(job, found.events),
        tasks=task_lines(
            job.tasks,
            {task.extracted.position: task.extracted.alternatives for task in found.estimator.tasks},
            defaults=found.estimator.defaults,
            best=found.curve.best,
        ),
        notes=_notes(found.events, artifact.report.choice if artifact else job.choice),
        errors=error_lines(job.failure.details) if job.failure else [],
        found=found,
        plot=Plot(found.curve.estimate, level.measured, is_final=level.is_final),
        artifact=artifact,
        comparison=timing_rows(artifact.report) if artifact else [],
        profile=None if isinstance(profile, str) else job_profile.view(profile),
        unprofiled=profile if isinstance(profile, str) else "",
        files=contents(services.blobs, artifact.digest) if artifact and not artifact.deleted_at else [],
        webhook=webhook.url if webhook else None,
        deliveries=deliveries,
        log=_log(services, job_id),
        last_event=min(status.last_event, found.last_event),
        may_change=Scope.SUBMIT in principal.scopes,
    )


def _doing(job_events: Sequence[JobEvent]) -> str:
    last = next((event for event in reversed(job_events) if event.kind is EventKind.STAGE), None)
    return str(last.data["message"]) if last is not None and last.data["status"] == "working" else ""


def _notes(job_events: Sequence[JobEvent], choice: Sequence[str]) -> list[str]:
    """Return the messages of notes, except those repeated in the reasons for the choice."""
    notes = [event.data["message"] for event in job_events if event.kind is EventKind.NOTE]
    return [note for note in notes if not any(note.rstrip(".") in reason for reason in choice)]


def _log(services: Services, job_id: str) -> str:
    _, content = outputs.read_log(services, job_id, None)
    return "\n".join(content.decode(errors="replace").splitlines()[-_LOG_LINES:])


_MOST_MANIFEST_BYTES = 1024 * 1024

_MEANINGS = {
    "libmodel.so": "the compiled network, for programs without TVM",
    "tunesmith.h": "the C interface of libmodel.so",
    "tunesmith.hpp": "the same for C++",
    "tunesmith-config.cmake": "for find_package(tunesmith) of CMake",
    "tunesmith.pc": "for pkg-config",
    "libmodel.weights": "the weights of libmodel.so",
    "original.onnx": "the model as it was uploaded, for the runtime of the bundle",
    "prepared.onnx": "the model with fixed shapes and folded constants, for the runtime of the bundle",
    "rewritten.onnx": "the prepared model with operators replaced for compilers, for the runtime of the bundle",
    "quantized.onnx": "the model in int8, with quantized weights and activations (QDQ), for the runtime of the bundle",
    "libmodel.a": "the compiled network, for static programs",
    "libmodel.h": "declares the function of libmodel.a",
    bundle.LIBRARY: "the compiled network, for TVM",
    bundle.OBJECTS: "object files for linking",
    bundle.ARCHIVE: "a static library whose functions register themselves",
    "mod.json": "the graph, or the code of the virtual machine",
    "mod.params": "the weights",
    bundle.MANIFEST: "target, toolchain, signature and file digests",
    bundle.EVIDENCE: "benchmark samples, errors and compared builds",
    bundle.RECORDS: "the best records, in the tuner's native format",
    bundle.README: "how to run the bundle",
    bundle.EXAMPLE: "an example program",
}


@dataclass(frozen=True, kw_only=True)
class BundledFile:
    name: str
    size: int
    """Bytes."""
    sha256: str | None
    """Digest from the manifest; None for the manifest itself."""
    meaning: str


def contents(blobs: BlobStore, digest: BlobDigest) -> list[BundledFile]:
    """List the files of a bundle, reading only tar headers and manifest; empty if it is missing or invalid."""
    try:
        with blobs.open(digest) as file:
            members = [member for member in archives.members(file) if not member.is_folder]
            digests = _digests(file, members)
    except (errors.BlobNotFound, errors.BlobDamaged, errors.BlobStoreUnavailable, OSError, ValueError):
        return []
    return [
        BundledFile(
            name=member.name, size=member.size, sha256=digests.get(member.name), meaning=_MEANINGS.get(member.name, "")
        )
        for member in members
    ]


def _digests(file: BinaryIO, members: list[archives.Member]) -> dict[str, str]:
    manifest = next((member for member in members if member.name == bundle.MANIFEST), None)
    if manifest is None:
        return {}
    document: Any = json.loads(archives.content(file, manifest).read(_MOST_MANIFEST_BYTES))
    files = document.get("files", {})
    return {str(name): str(digest) for name, digest in files.items()}
