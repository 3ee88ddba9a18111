"""A request that starts from another job's: what it says itself counts, all else is as it was there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from sqlalchemy.orm import Session

from api.jobs import drafts, fitting
from api.jobs.drafts import JobDraft
from domain import targets
from domain.jobs import AccuracyGate, JobRequest, MeasureOptions, Precision, RunnerKind, TunerOptions
from domain.models import Model, ModelFormat
from domain.tokens import Principal
from storage import models, owners

_AS_THEY_ARE = ("target", "threads", "tuner", "runner", "device", "precision", "bundle_format", "priority", "group")


def complete(session: Session, draft: JobDraft, principal: Principal) -> tuple[JobDraft, Model]:
    """The whole request and its model.

    What the other job says and this one cannot use, such as options of a tuner that it does not ask for, falls away.
    Raises JobNotFound, ModelNotFound, and RequestValidationError when both together are too much.
    """
    if draft.like is None:
        return draft, owners.model(session, str(draft.model), principal)
    old = owners.job(session, draft.like, principal).request
    given = {name: value for name, value in draft.said.items() if name != "like"}
    model = owners.model(session, draft.model or old.model_digest, principal)
    inherited = _said(old, models.get(session, old.model_digest))
    _drop_unusable(inherited, merge(inherited, given), old, model)
    try:
        return drafts.ADAPTER.validate_python({**merge(inherited, given), "model": model.digest}), model
    except ValidationError as error:
        found = [{**entry, "loc": ("body", *entry["loc"])} for entry in error.errors(include_url=False)]
        raise RequestValidationError(found) from None


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Objects field by field; everything else, null too, in place of what was there."""
    merged = dict(old)
    for name, value in new.items():
        was = old.get(name)
        merged[name] = merge(was, value) if isinstance(was, dict) and isinstance(value, dict) else value
    return merged


def _said(request: JobRequest, model: Model) -> dict[str, Any]:
    """The request as its maker might have written it, without what it leaves to defaults."""
    options = _changed(request.tuner_options, TunerOptions())
    if model.facts.format is ModelFormat.IRMODULE:
        options.pop("rewrite", None)  # was not asked: an IRModule is never rewritten
    return {
        **{name: getattr(request, name) for name in _AS_THEY_ARE},
        "budget": asdict(request.budget),
        "rpc": asdict(request.rpc) if request.rpc else None,
        "accuracy": _changed(request.accuracy, AccuracyGate()),
        "measure": _changed(request.measure, MeasureOptions()),
        "tuner_options": options,
        "input_shapes": {name: list(shape) for name, shape in request.input_shapes.items()},
        "labels": dict(request.labels),
    }


def _changed(value: Any, default: Any) -> dict[str, Any]:
    return {
        field.name: getattr(value, field.name)
        for field in fields(value)
        if getattr(value, field.name) != getattr(default, field.name)
    }


def _drop_unusable(inherited: dict[str, Any], merged: Mapping[str, Any], old: JobRequest, model: Model) -> None:
    runner, precision = merged["runner"], merged["precision"]
    if runner != RunnerKind.RPC:
        del inherited["rpc"]
    if runner != RunnerKind.NONE:
        del inherited["device"]
    if RunnerKind.NONE in (runner, old.runner):
        # Such a job has no budget of its own, only the default that nobody asked for.
        del inherited["budget"], inherited["measure"]
    if runner == RunnerKind.NONE or precision == Precision.F32:
        del inherited["accuracy"]
    if targets.kind_of(str(merged["target"])) == "cuda":
        inherited.get("measure", {}).pop("enable_cpu_cache_flush", None)
    options = inherited["tuner_options"]
    search = (merged["tuner_options"] or {}).get("search") or TunerOptions.search
    for name in fitting.without_effect(list(options), tuner=str(merged["tuner"]), search=search):
        del options[name]
    known = {spec.name for spec in model.facts.inputs}
    inherited["input_shapes"] = {name: shape for name, shape in inherited["input_shapes"].items() if name in known}
