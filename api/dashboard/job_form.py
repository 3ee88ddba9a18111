"""What was filled in for a new job as the body of a request, and what is wrong with it, field by field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from api import schemas
from api.dashboard import job_fields, open_dimensions
from api.dashboard.numbers import number
from api.dashboard.open_dimensions import OpenDimension
from api.jobs import drafts
from api.jobs.drafts import JobDraft
from domain import errors
from domain.jobs import AccuracyGate, BundleFormat, MeasureOptions, RpcOptions, RunnerKind, TunerOptions
from domain.targets import NATIVE

OTHER_TARGET = "other"
FILLED_IN = {"target": NATIVE, "tuner": "auto", "precision": "f32", "budget": "600"}
"""What the form begins with."""

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
}

_PLAINER = {
    "int_parsing": "this is no whole number",
    "int_from_float": "this is no whole number",
    "int_type": "this is no whole number",
    "float_parsing": "this is no number",
    "float_type": "this is no number",
}
"""In place of what pydantic says of these kinds."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    field: str | None
    """None of what no single field is to blame for."""
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


def draft(values: Mapping[str, str], model: schemas.Model, dimensions: Sequence[OpenDimension]) -> JobDraft:
    """Raises FaultyForm."""
    document, faults = _document(values, model, dimensions)
    try:
        made = drafts.ADAPTER.validate_python(document)
    except ValidationError as error:
        faults += [_fault(entry, dimensions) for entry in error.errors()]
    if faults:
        raise FaultyForm(faults)
    return made


def fingerprint(request: JobDraft) -> str:
    """By which a request is known to be the one that a plan was made for."""
    return hashlib.sha256(json.dumps(drafts.whole(request), sort_keys=True).encode()).hexdigest()


def fault_of(error: errors.TunesmithError, values: Mapping[str, str], dimensions: Sequence[OpenDimension]) -> Fault:
    """The error beside the field that it speaks of, as far as that can be told."""
    field = next((name for kind, name in _FIELD_OF.items() if isinstance(error, kind)), None)
    hint = error.hint
    if isinstance(error, errors.ShapeRequired | errors.ShapeMismatch):
        field = _dimension_of(error, values, dimensions)
        hint = "Give every open dimension a size." if isinstance(error, errors.ShapeRequired) else hint
    elif isinstance(error, errors.InvalidOption):
        field = _option_of(error)
    return Fault(field=field, code=error.code, message=error.message, hint=hint)


def values_of(job: schemas.Job, dimensions: Sequence[OpenDimension], *, usual_priority: int) -> dict[str, str]:
    """What to fill in for the same request again; what it left at its default stays empty."""
    asked = {
        "model": job.model,
        "target": job.target,
        "tuner": job.tuner.value,
        "precision": job.precision.value,
        "threads": _text(job.threads),
        "runner": _changed(job.runner, RunnerKind.LOCAL),
        "device": _text(job.device),
        "bundle_format": _changed(job.bundle_format, BundleFormat.SHARED),
        "priority": _changed(_text(job.priority), _text(usual_priority)),
        "group": _text(job.group),
        "labels": "\n".join(f"{name}={value}" for name, value in job.labels.items()),
        **_budget_of(job.budget),
        **_differing("measure", job.measure, MeasureOptions()),
        **_differing("tuner_options", job.tuner_options, TunerOptions()),
        **_differing("accuracy", job.accuracy.model_dump(), AccuracyGate()),
        **open_dimensions.values(dimensions, job.input_shapes),
    }
    if job.rpc is not None:
        asked |= {"rpc.tracker": job.rpc.tracker, "rpc.key": job.rpc.key}
        asked["rpc.session_timeout"] = _changed(_text(job.rpc.session_timeout), _text(RpcOptions.session_timeout))
    return {name: value for name, value in asked.items() if value}


def _document(
    values: Mapping[str, str], model: schemas.Model, dimensions: Sequence[OpenDimension]
) -> tuple[dict[str, Any], list[Fault]]:
    given = {name: value.strip() for name, value in values.items()}
    document: dict[str, Any] = {
        "model": model.id,
        "target": given.get("target_text", "") if given.get("target") == OTHER_TARGET else given.get("target", NATIVE),
        "input_shapes": open_dimensions.shapes(model.inputs, dimensions, given),
    }
    labels, faults = _labels(given.get("labels", ""))
    if labels:
        document["labels"] = labels
    for name in ("tuner", "precision", *_advanced(given), *_limits(given)):
        if given.get(name):
            _put(document, name, _typed(name, given[name]))
    if given.get("webhook.url") and not given.get("webhook.secret"):
        hint = "whsec_ and the base64 of 24 to 64 random bytes."
        message = "a webhook needs a secret of yours"
        faults.append(Fault(field="webhook.secret", code=errors.InvalidRequest.code, message=message, hint=hint))
    budget = given.get("budget", "")
    if budget and given.get("runner") != RunnerKind.NONE:
        document.setdefault("budget", {} if budget == job_fields.CUSTOM else {"seconds": number(budget)})
    return document, faults


def _typed(name: str, text: str) -> str | int | float | bool:
    """As JSON has it; what is no number stays text, for the API to refuse."""
    if name in job_fields.SWITCHES:
        return {"true": True, "false": False}.get(text, text)
    return number(text) if name in job_fields.NUMBERS else text


def _advanced(given: Mapping[str, str]) -> list[str]:
    runner = given.get("runner") or RunnerKind.LOCAL
    return [field.name for field in job_fields.ADVANCED if field.kind != "lines" and field.runner in (None, runner)]


def _limits(given: Mapping[str, str]) -> list[str]:
    custom = given.get("budget") == job_fields.CUSTOM
    return [limit.name for limit in job_fields.BUDGET_LIMITS] if custom else []


def _put(document: dict[str, Any], name: str, value: object) -> None:
    *groups, last = name.split(".")
    for group in groups:
        document = document.setdefault(group, {})
    document[last] = value


def _labels(text: str) -> tuple[dict[str, str], list[Fault]]:
    found: dict[str, str] = {}
    faults = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not (name.strip() and equals and value.strip()):
            message = f"{line[:80]!r} is no label"
            faults.append(Fault(field="labels", code=errors.InvalidRequest.code, message=message, hint="NAME=VALUE"))
        found[name.strip()] = value.strip()
    return found, faults


def _fault(entry: Any, dimensions: Sequence[OpenDimension]) -> Fault:
    location = [str(part) for part in entry["loc"]]
    name = ".".join(location[:2])
    known = {field.name for field in (*job_fields.ADVANCED, *job_fields.BUDGET_LIMITS)}
    field: str | None = name if name in known else location[0]
    if location[0] == "input_shapes":
        place = (location[1], int(location[2])) if len(location) > 2 and location[2].isdigit() else None
        field = next((dimension.field for dimension in dimensions if place in dimension.places), "input_shapes")
    message = _PLAINER.get(entry["type"]) or str(entry["msg"])
    return Fault(field=field, code=errors.InvalidRequest.code, message=f"{_label(field, dimensions)}: {message}")


def _label(name: str | None, dimensions: Sequence[OpenDimension]) -> str:
    labels = {field.name: field.label for field in (*job_fields.ADVANCED, *job_fields.BUDGET_LIMITS)}
    labels |= {dimension.field: dimension.label for dimension in dimensions}
    return labels.get(str(name)) or str(name).replace("_", " ").capitalize()


def _dimension_of(
    error: errors.ShapeRequired | errors.ShapeMismatch, values: Mapping[str, str], dimensions: Sequence[OpenDimension]
) -> str:
    """The first that is empty, or the first of the input that is wrong."""
    if isinstance(error, errors.ShapeRequired):
        blamed = [dimension for dimension in dimensions if not values.get(dimension.field, "").strip()]
    else:
        name = error.details.get("input")
        blamed = [dimension for dimension in dimensions if any(place[0] == name for place in dimension.places)]
    return blamed[0].field if blamed else "input_shapes"


def _option_of(error: errors.InvalidOption) -> str | None:
    option = error.details.get("option")
    names = {field.name.rpartition(".")[2]: field.name for field in job_fields.ADVANCED} | {"precision": "precision"}
    return names.get(str(option))


def _budget_of(budget: schemas.Budget) -> dict[str, str]:
    preset = _text(budget.seconds)
    if budget.trials is None and preset in {choice.value for choice in job_fields.BUDGETS}:
        return {"budget": preset}
    return {"budget": job_fields.CUSTOM, "budget.seconds": preset, "budget.trials": _text(budget.trials)}


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
