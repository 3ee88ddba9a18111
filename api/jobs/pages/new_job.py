"""The form for a new job: choose a model and options, show the plan, submit."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError

from api import connections
from api.auth import Reader, Submitter
from api.dashboard import rendering
from api.dashboard.formats import number
from api.fleet import routes as fleet
from api.jobs import drafts, schemas
from api.jobs import routes as jobs
from api.jobs.drafts import JobDraft
from api.jobs.pages import form_fields, open_dimensions
from api.jobs.pages.open_dimensions import OpenDimension
from api.jobs.requests import default_total_seconds
from api.models import routes as models
from api.models import schemas as model_schemas
from api.services import Services, ServicesDep
from api.settings import ApiSettings
from domain import errors, sizes
from domain.artifacts import Runtime
from domain.jobs import AccuracyGate, Budget, BundleFormat, MeasureOptions, RpcOptions, RunnerKind, TunerOptions
from domain.sizes import Choice
from domain.sizes import Size as DomainSize
from domain.targets import NATIVE
from domain.tokens import Principal, Scope

router = APIRouter(include_in_schema=False)

_MODELS_OFFERED = 100


@dataclass(kw_only=True)
class Filled:
    """The values of the form and their errors."""

    values: dict[str, str]
    model: model_schemas.Model | None
    dimensions: list[OpenDimension]
    faults: list[Fault] = field(default_factory=list)
    status: int = 200

    def value(self, name: str) -> str:
        return self.values.get(name, "")

    def faults_of(self, name: str) -> list[Fault]:
        return [fault for fault in self.faults if fault.field == name]

    def anchor(self, name: str) -> str:
        """Return the id of the element that shows the errors of a field."""
        places = [dimension.field for dimension in self.dimensions]
        return f"dimension-{places.index(name)}" if name in places else f"field-{name}"

    def blame(self, error: errors.TunesmithError) -> None:
        self.faults.append(fault_of(error, self.values, self.dimensions))
        self.status = error.status

    @property
    def is_advanced(self) -> bool:
        """Whether a field of the advanced options has a value or an error."""
        names = {one.name for one in form_fields.ADVANCED}
        return any(self.value(name) for name in names) or any(fault.field in names for fault in self.faults)


@router.get("/jobs/new")
def elsewhere(request: Request) -> RedirectResponse:
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/new{query}", status_code=307)


@router.get("/new")
def form(request: Request, services: ServicesDep, principal: Reader) -> HTMLResponse:
    """Show the form with values of the query; ``like`` is a job whose request supplies the others."""
    return _page(request, services, principal, _begun(services, principal, request.query_params))


@router.post("/new/model")
def of_model(request: Request, services: ServicesDep, principal: Reader, submitted: SubmittedDep) -> HTMLResponse:
    """Show the form for the selected model. The other values do not go into a URL, as one of them is a secret."""
    return _page(request, services, principal, _begun(services, principal, submitted))


@router.post("/new/plan")
async def plan(request: Request, services: ServicesDep, principal: Submitter, submitted: SubmittedDep) -> HTMLResponse:
    def work(left: Callable[[], bool]) -> HTMLResponse:
        filled = _filled(services, principal, submitted)
        return _planned(request, services, principal, filled, _draft(filled), left)

    return await connections.while_connected(request, work)


@router.post("/new")
async def queue(request: Request, services: ServicesDep, principal: Submitter, submitted: SubmittedDep) -> Response:
    """Submit the request, or show its plan if it is not the request whose plan was shown."""
    return await connections.while_connected(
        request, lambda left: _queue(request, services, principal, submitted, left)
    )


def _queue(
    request: Request,
    services: Services,
    principal: Principal,
    submitted: dict[str, str],
    left: Callable[[], bool],
) -> Response:
    filled = _filled(services, principal, submitted)
    draft = _draft(filled)
    if draft is None or submitted.get("planned") != fingerprint(draft):
        return _planned(request, services, principal, filled, draft, left, changed=draft is not None)
    try:
        job = jobs.create(services, principal, draft, submitted.get("key") or None)
    except errors.TunesmithError as error:
        filled.blame(error)
        return _page(request, services, principal, filled)
    return RedirectResponse(f"/jobs/{job.id}", status_code=303)


def _begun(services: Services, principal: Principal, values: Mapping[str, str]) -> Filled:
    given = {name: value for name, value in values.items() if value}
    like: schemas.Job | None = None
    faults: list[errors.TunesmithError] = []
    if "like" in given:
        try:
            like = jobs.one(services, principal, given["like"])
        except errors.JobNotFound as error:
            faults.append(error)
    filled = _filled(services, principal, {"model": like.model} | given if like else given)
    usual = {dimension.field: dimension.usual for dimension in filled.dimensions}
    asked = values_of(like, filled.dimensions, services.settings) if like else {}
    filled.values = {**FILLED_IN, **usual, **asked, **filled.values}
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
    """Return the request; None if the form is invalid, with its faults recorded."""
    if filled.model is None:
        if not filled.faults:
            filled.blame(errors.ModelNotFound("no model is selected", hint="Select or upload a model."))
        return None
    try:
        return draft(filled.values, filled.model, filled.dimensions)
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
    left: Callable[[], bool],
    *,
    changed: bool = False,
) -> HTMLResponse:
    made, unavailable = None, None
    if draft is not None:
        try:
            made = jobs.planned(services, principal, draft, left)
        except (errors.Unavailable, errors.EngineError, errors.SizesNotPlanned) as error:
            unavailable = error
        except errors.TunesmithError as error:
            filled.blame(error)
            draft = None
    ticket = {"planned": fingerprint(draft), "key": secrets.token_urlsafe(16)} if draft else None
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
    """Render the form; ``ticket`` identifies a valid request for its submission, None for an invalid one."""
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
        fields=form_fields,
        other_target=OTHER_TARGET,
        may_submit=Scope.SUBMIT in principal.scopes,
        most_bytes=services.settings.max_model_bytes,
        plan=plan,
        minutes=_minutes(plan),
        unavailable=unavailable,
        ticket=ticket,
        changed=changed,
    )


def _targets(services: Services, principal: Principal, filled: Filled) -> dict[str, Any]:
    """Return the targets of the fleet; any other target goes into the text field."""
    living = [worker for worker in fleet.list_workers(services, principal).workers if worker.alive]
    gpus = [gpu for worker in living for gpu in worker.accelerators]
    known = fleet.list_targets(services, principal).targets
    chosen = filled.value("target")
    if chosen and chosen not in (*known, OTHER_TARGET):
        filled.values |= {"target": OTHER_TARGET, "target_text": chosen}
    devices = [gpu.name for gpu in gpus] + [worker.device for worker in living if not worker.accelerators]
    return {"known": known, "devices": sorted(set(devices)), "workers": len(living)}


def _minutes(plan: schemas.Plan | None) -> tuple[float, float] | None:
    """Return the minimum and maximum minutes over all tuners of the plan."""
    found = [tuner.minutes for engine in plan.engines for tuner in engine.tuners] if plan else []
    return (min(found), max(found)) if found else None


_MOST_FIELDS = 1000


async def _fields(request: Request) -> dict[str, str]:
    body = await request.body()
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=_MOST_FIELDS)
        fields = dict(pairs)
        drafts.check_text(fields)
    except ValueError:
        raise errors.InvalidRequest("the body is not a valid form, or contains NUL characters") from None
    return fields


SubmittedDep = Annotated[dict[str, str], Depends(_fields)]
"""Values of the form by name; the last one if a name is repeated. Raises InvalidRequest."""


OTHER_TARGET = "other"
FILLED_IN = {"target": NATIVE, "tuner": "auto", "precision": "f32", "budget": "600"}
"""Initial values of the form."""

_FIELD_OF: dict[type[errors.TunesmithError], str] = {
    errors.ModelNotFound: "model",
    errors.InvalidModel: "model",
    errors.UnsupportedOperators: "model",
    errors.UnknownTarget: "target",
    errors.UnsupportedTarget: "target",
    errors.UnknownTuner: "tuner",
    errors.UnknownPrecision: "precision",
    errors.UnknownRunner: "runner",
    errors.InvalidBudget: "budget",
    errors.InvalidSizes: "input_shapes",
    errors.InvalidFrequencies: "input_shapes",
    errors.SizesNotSupported: "input_shapes",
    errors.InvalidPadding: "padding",
}

_PLAINER = {
    "int_parsing": "must be an integer",
    "int_from_float": "must be an integer",
    "int_type": "must be an integer",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
}
"""Messages that replace those of pydantic, by error type."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    field: str | None
    """Field with the error; None if it concerns the whole form."""
    code: str
    message: str
    hint: str | None = None

    @property
    def sentence(self) -> str:
        return self.message[:1].upper() + self.message[1:]


class FaultyForm(Exception):
    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(fault.message for fault in faults))
        self.faults = list(faults)


def draft(values: Mapping[str, str], model: model_schemas.Model, dimensions: Sequence[OpenDimension]) -> JobDraft:
    """Convert the form to a request. Raises FaultyForm."""
    document, faults = _document(values, model, dimensions)
    try:
        made = drafts.ADAPTER.validate_python(document)
    except ValidationError as error:
        faults += [_fault(entry, dimensions) for entry in error.errors()]
    if faults:
        raise FaultyForm(faults)
    return made


def fingerprint(request: JobDraft) -> str:
    """Return a digest of a request, to tell whether a plan was made for it."""
    return hashlib.sha256(json.dumps(drafts.whole(request), sort_keys=True).encode()).hexdigest()


def fault_of(error: errors.TunesmithError, values: Mapping[str, str], dimensions: Sequence[OpenDimension]) -> Fault:
    """Convert an error to a fault of the field that caused it, if known."""
    field = next((name for kind, name in _FIELD_OF.items() if isinstance(error, kind)), None)
    hint = error.hint
    if isinstance(error, errors.ShapeRequired | errors.ShapeMismatch):
        field = _dimension_of(error, values, dimensions)
        hint = "Set a size for every dynamic dimension." if isinstance(error, errors.ShapeRequired) else hint
    elif isinstance(error, errors.InvalidOption):
        field = _option_of(error)
    return Fault(field=field, code=error.code, message=error.message, hint=hint)


def values_of(job: schemas.Job, dimensions: Sequence[OpenDimension], settings: ApiSettings) -> dict[str, str]:
    """Return the form values of a job's request; defaults stay empty."""
    usual_total = default_total_seconds(Budget(**job.budget.model_dump()), settings)
    asked = {
        "model": job.model,
        "target": job.target,
        "tuner": job.tuner.value,
        "precision": job.precision.value,
        "threads": _text(job.threads),
        "runner": _changed(job.runner, RunnerKind.LOCAL),
        "device": _text(job.device),
        "bundle_format": _changed(job.bundle_format, BundleFormat.SHARED),
        # Several sizes have one runtime, whatever was requested.
        "runtimes": "" if job.sizes or tuple(job.runtimes) == tuple(Runtime) else ", ".join(job.runtimes),
        "data": _text(job.data),
        "priority": _changed(_text(job.priority), _text(settings.default_priority)),
        "group": _text(job.group),
        "labels": "\n".join(f"{name}={value}" for name, value in job.labels.items()),
        **_budget_of(job.budget),
        "budget.total_seconds": _changed(_text(job.budget.total_seconds), _text(usual_total)),
        **_differing("measure", job.measure, MeasureOptions()),
        **_differing("tuner_options", job.tuner_options, TunerOptions()),
        **_differing("accuracy", job.accuracy.model_dump(), AccuracyGate()),
        **open_dimensions.values(dimensions, _shapes(job)),
        "padding": "\n".join(f"{name}={value:g}" for name, value in job.padding.items()),
    }
    if job.rpc is not None:
        asked |= {"rpc.tracker": job.rpc.tracker, "rpc.key": job.rpc.key}
        asked["rpc.session_timeout"] = _changed(_text(job.rpc.session_timeout), _text(RpcOptions.session_timeout))
    return {name: value for name, value in asked.items() if value}


def _shapes(job: schemas.Job) -> dict[str, list[Choice]]:
    """Return the requested shapes, with several values of a dimension as they are entered."""
    of = [
        DomainSize(
            name=size.name,
            values=size.values,
            input_shapes={name: tuple(shape) for name, shape in size.input_shapes.items()},
            share=size.share,
        )
        for size in job.sizes
    ]
    return sizes.stated_choices(of) or {name: list(shape) for name, shape in job.input_shapes.items()}


def _document(
    values: Mapping[str, str], model: model_schemas.Model, dimensions: Sequence[OpenDimension]
) -> tuple[dict[str, Any], list[Fault]]:
    given = {name: value.strip() for name, value in values.items()}
    document: dict[str, Any] = {
        "model": model.id,
        "target": given.get("target_text", "") if given.get("target") == OTHER_TARGET else given.get("target", NATIVE),
        "input_shapes": open_dimensions.shapes(model.inputs, dimensions, given),
    }
    labels, faults = _pairs("labels", given.get("labels", ""))
    if labels:
        document["labels"] = labels
    padding, wrong = _pairs("padding", given.get("padding", ""))
    faults += wrong
    if padding:
        document["padding"] = {name: number(value) for name, value in padding.items()}
    for name in ("tuner", "precision", *_advanced(given), *_limits(given)):
        if given.get(name):
            _put(document, name, _typed(name, given[name]))
    if given.get("webhook.url") and not given.get("webhook.secret"):
        hint = "Enter whsec_ and the base64 of 24 to 64 random bytes."
        message = "a webhook needs a secret"
        faults.append(Fault(field="webhook.secret", code=errors.InvalidRequest.code, message=message, hint=hint))
    budget = given.get("budget", "")
    if budget and given.get("runner") != RunnerKind.NONE:
        document.setdefault("budget", {})
        if budget != form_fields.CUSTOM:
            document["budget"]["seconds"] = number(budget)
    return document, faults


def _typed(name: str, text: str) -> str | int | float | bool | list[str]:
    """Convert a value to its JSON type; an invalid number stays text, for the API to reject."""
    if name in form_fields.SWITCHES:
        return {"true": True, "false": False}.get(text, text)
    if name in form_fields.LISTS:
        return [part.strip() for part in text.split(",")]
    return number(text) if name in form_fields.NUMBERS else text


def _advanced(given: Mapping[str, str]) -> list[str]:
    runner = given.get("runner") or RunnerKind.LOCAL
    return [field.name for field in form_fields.ADVANCED if field.kind != "lines" and field.runner in (None, runner)]


def _limits(given: Mapping[str, str]) -> list[str]:
    custom = given.get("budget") == form_fields.CUSTOM
    return [limit.name for limit in form_fields.BUDGET_LIMITS] if custom else []


def _put(document: dict[str, Any], name: str, value: object) -> None:
    *groups, last = name.split(".")
    for group in groups:
        document = document.setdefault(group, {})
    document[last] = value


def _pairs(field: str, text: str) -> tuple[dict[str, str], list[Fault]]:
    """Parse lines of the form NAME=VALUE."""
    found: dict[str, str] = {}
    faults = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not (name.strip() and equals and value.strip()):
            message = f"{'not a label' if field == 'labels' else 'not a padding'}: {line[:80]!r}"
            hint = "Write NAME=VALUE."
            faults.append(Fault(field=field, code=errors.InvalidRequest.code, message=message, hint=hint))
        found[name.strip()] = value.strip()
    return found, faults


def _fault(entry: Any, dimensions: Sequence[OpenDimension]) -> Fault:
    location = [str(part) for part in entry["loc"]]
    name = ".".join(location[:2])
    known = {field.name for field in (*form_fields.ADVANCED, *form_fields.BUDGET_LIMITS)}
    field: str | None = name if name in known else location[0]
    if location[0] == "input_shapes":
        place = (location[1], int(location[2])) if len(location) > 2 and location[2].isdigit() else None
        field = next((dimension.field for dimension in dimensions if place in dimension.places), "input_shapes")
    message = _PLAINER.get(entry["type"]) or str(entry["msg"])
    return Fault(field=field, code=errors.InvalidRequest.code, message=f"{_label(field, dimensions)}: {message}")


def _label(name: str | None, dimensions: Sequence[OpenDimension]) -> str:
    labels = {field.name: field.label for field in (*form_fields.ADVANCED, *form_fields.BUDGET_LIMITS)}
    labels |= {dimension.field: dimension.label for dimension in dimensions}
    return labels.get(str(name)) or str(name).replace("_", " ").capitalize()


def _dimension_of(
    error: errors.ShapeRequired | errors.ShapeMismatch, values: Mapping[str, str], dimensions: Sequence[OpenDimension]
) -> str:
    """Return the field of the first empty dimension, or of the first one of the wrong input."""
    if isinstance(error, errors.ShapeRequired):
        blamed = [dimension for dimension in dimensions if not values.get(dimension.field, "").strip()]
    else:
        name = error.details.get("input")
        blamed = [dimension for dimension in dimensions if any(place[0] == name for place in dimension.places)]
    return blamed[0].field if blamed else "input_shapes"


def _option_of(error: errors.InvalidOption) -> str | None:
    option = error.details.get("option")
    names = {field.name.rpartition(".")[2]: field.name for field in form_fields.ADVANCED} | {"precision": "precision"}
    return names.get(str(option))


def _budget_of(budget: schemas.Budget) -> dict[str, str]:
    preset = _text(budget.seconds)
    if budget.trials is None and preset in {choice.value for choice in form_fields.BUDGETS}:
        return {"budget": preset}
    return {"budget": form_fields.CUSTOM, "budget.seconds": preset, "budget.trials": _text(budget.trials)}


def _differing(group: str, given: Mapping[str, Any], defaults: object) -> dict[str, str]:
    return {f"{group}.{name}": _text(value) for name, value in given.items() if value != getattr(defaults, name, None)}


def _changed(value: str, default: str) -> str:
    return "" if value == default else value


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)
