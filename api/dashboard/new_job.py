"""The form for a new job: model and options, then the plan of what it would do, then the queue."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from api import schemas
from api.auth import Reader, Submitter
from api.dashboard import job_fields, job_form, open_dimensions, rendering
from api.dashboard.job_form import Fault, FaultyForm
from api.dashboard.open_dimensions import OpenDimension
from api.dashboard.submitted import SubmittedDep
from api.jobs.drafts import JobDraft
from api.routes import fleet, jobs, models
from api.services import Services, ServicesDep
from domain import errors
from domain.targets import GPU_ARCHITECTURES
from domain.tokens import Principal, Scope

router = APIRouter(include_in_schema=False)

_MODELS_OFFERED = 100


@dataclass(kw_only=True)
class Filled:
    """The form as it is shown: what is in it, and what is wrong with that."""

    values: dict[str, str]
    model: schemas.Model | None
    dimensions: list[OpenDimension]
    faults: list[Fault] = field(default_factory=list)
    status: int = 200

    def value(self, name: str) -> str:
        return self.values.get(name, "")

    def faults_of(self, name: str) -> list[Fault]:
        return [fault for fault in self.faults if fault.field == name]

    def anchor(self, name: str) -> str:
        """Id of the element where the fault of a field is told."""
        places = [dimension.field for dimension in self.dimensions]
        return f"dimension-{places.index(name)}" if name in places else f"field-{name}"

    def blame(self, error: errors.TunesmithError) -> None:
        self.faults.append(job_form.fault_of(error, self.values, self.dimensions))
        self.status = error.status

    @property
    def is_advanced(self) -> bool:
        """Whether something that is folded away must be seen."""
        names = {one.name for one in job_fields.ADVANCED}
        return any(self.value(name) for name in names) or any(fault.field in names for fault in self.faults)


@router.get("/jobs/new")
def elsewhere(request: Request) -> RedirectResponse:
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/new{query}", status_code=307)


@router.get("/new")
def form(request: Request, services: ServicesDep, principal: Reader) -> HTMLResponse:
    """Filled in with what the query names; ``like`` is a job whose request is filled in first."""
    given = {name: value for name, value in request.query_params.items() if value}
    return _page(request, services, principal, _begun(services, principal, given))


@router.post("/new/plan")
def plan(request: Request, services: ServicesDep, principal: Submitter, submitted: SubmittedDep) -> HTMLResponse:
    filled = _filled(services, principal, submitted)
    draft = _draft(filled)
    return _planned(request, services, principal, filled, draft)


@router.post("/new")
def queue(request: Request, services: ServicesDep, principal: Submitter, submitted: SubmittedDep) -> Response:
    """Of a request that is not the one whose plan was seen, the plan is shown first."""
    filled = _filled(services, principal, submitted)
    draft = _draft(filled)
    if draft is None or submitted.get("planned") != job_form.fingerprint(draft):
        return _planned(request, services, principal, filled, draft, changed=draft is not None)
    try:
        job = jobs.create(services, principal, draft, submitted.get("key") or None)
    except errors.TunesmithError as error:
        filled.blame(error)
        return _page(request, services, principal, filled)
    return RedirectResponse(f"/jobs/{job.id}", status_code=303)


def _begun(services: Services, principal: Principal, given: dict[str, str]) -> Filled:
    like: schemas.Job | None = None
    faults: list[errors.TunesmithError] = []
    if "like" in given:
        try:
            like = jobs.one(services, principal, given["like"])
        except errors.JobNotFound as error:
            faults.append(error)
    filled = _filled(services, principal, {"model": like.model} | given if like else given)
    usual = {dimension.field: dimension.usual for dimension in filled.dimensions}
    usual_priority = services.settings.default_priority
    asked = job_form.values_of(like, filled.dimensions, usual_priority=usual_priority) if like else {}
    filled.values = {**job_form.FILLED_IN, **usual, **asked, **filled.values}
    for missing in faults:
        filled.blame(missing)
    return filled


def _filled(services: Services, principal: Principal, values: dict[str, str]) -> Filled:
    model, missing = None, None
    if values.get("model"):
        try:
            model = models.one(services, principal, values["model"])
        except errors.ModelNotFound as error:
            missing = error
    dimensions = open_dimensions.find(model.inputs) if model else []
    filled = Filled(values=dict(values), model=model, dimensions=dimensions)
    if model:
        filled.values["model"] = model.id
    if missing:
        filled.blame(missing)
    return filled


def _draft(filled: Filled) -> JobDraft | None:
    """None, with the faults told, of what is no request yet."""
    if filled.model is None:
        if not filled.faults:
            filled.blame(errors.ModelNotFound("no model is chosen", hint="Choose one, or upload one."))
        return None
    try:
        return job_form.draft(filled.values, filled.model, filled.dimensions)
    except FaultyForm as error:
        filled.faults += error.faults
        filled.status = errors.InvalidRequest.status
        return None


def _planned(
    request: Request,
    services: Services,
    principal: Principal,
    filled: Filled,
    draft: JobDraft | None,
    *,
    changed: bool = False,
) -> HTMLResponse:
    made, unavailable = None, None
    if draft is not None:
        try:
            made = jobs.plan(services, principal, draft)
        except (errors.Unavailable, errors.EngineError) as error:
            unavailable = error
        except errors.TunesmithError as error:
            filled.blame(error)
            draft = None
    ticket = {"planned": job_form.fingerprint(draft), "key": secrets.token_urlsafe(16)} if draft else None
    return _page(
        request, services, principal, filled, plan=made, unavailable=unavailable, ticket=ticket, changed=changed
    )


def _page(
    request: Request,
    services: Services,
    principal: Principal,
    filled: Filled,
    *,
    plan: schemas.Plan | None = None,
    unavailable: errors.TunesmithError | None = None,
    ticket: dict[str, str] | None = None,
    changed: bool = False,
) -> HTMLResponse:
    """``ticket``: what a request that may be queued is known by; None of one that may not."""
    offered = models.listing(services, principal, limit=_MODELS_OFFERED).models
    if filled.model and all(model.id != filled.model.id for model in offered):
        offered.insert(0, filled.model)
    return rendering.page(
        request,
        "new_job.html",
        status=filled.status,
        form=filled,
        offered=offered,
        targets=_targets(services, principal, filled),
        fields=job_fields,
        other_target=job_form.OTHER_TARGET,
        may_submit=Scope.SUBMIT in principal.scopes,
        most_bytes=services.settings.max_model_bytes,
        plan=plan,
        minutes=_minutes(plan),
        unavailable=unavailable,
        ticket=ticket,
        changed=changed,
    )


def _targets(services: Services, principal: Principal, filled: Filled) -> dict[str, Any]:
    """What the fleet offers; a target of somebody's own is written beside it."""
    living = [worker for worker in fleet.list_workers(services, principal).workers if worker.alive]
    gpus = [gpu for worker in living for gpu in worker.accelerators]
    known = [*fleet.list_targets(services, principal).targets, *sorted(filter(None, map(_cuda_target, gpus)))]
    chosen = filled.value("target")
    if chosen and chosen not in (*known, job_form.OTHER_TARGET):
        filled.values |= {"target": job_form.OTHER_TARGET, "target_text": chosen}
    devices = [gpu.name for gpu in gpus] + [worker.device for worker in living if not worker.accelerators]
    return {"known": list(dict.fromkeys(known)), "devices": sorted(set(devices)), "workers": len(living)}


def _cuda_target(gpu: schemas.Accelerator) -> str | None:
    """None of a GPU whose compute capability only its driver tells; keys end in it."""
    architecture = gpu.key.rpartition("/")[2]
    return f"cuda -arch={architecture}" if architecture in GPU_ARCHITECTURES else None


def _minutes(plan: schemas.Plan | None) -> tuple[float, float] | None:
    """The least and the most that any of the tuners would take."""
    found = [tuner.minutes for engine in plan.engines for tuner in engine.tuners] if plan else []
    return (min(found), max(found)) if found else None
