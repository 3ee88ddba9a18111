"""Creation of jobs, with idempotency."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from sqlalchemy.orm import Session

from api.jobs import drafts, fitting
from api.jobs.drafts import JobDraft
from api.jobs.requests import default_total_seconds, job_request
from api.settings import ApiSettings
from domain import destinations, sizes, targets
from domain.data_sets import DataSet
from domain.destinations import AllowedHosts
from domain.jobs import AccuracyGate, Job, JobRequest, MeasureOptions, Precision, RunnerKind, TunerOptions
from domain.models import Model, ModelFormat
from domain.tokens import Principal
from domain.webhooks import Webhook
from process import signatures
from storage import data_sets, idempotency, jobs, models, owners, webhooks, workers
from tunesmith.job_draft import WebhookDraft


@dataclass(frozen=True, kw_only=True)
class Creation:
    job: Job
    is_new: bool
    webhook: Webhook | None
    shows_secret: bool
    """Whether this request set the webhook."""


def create(
    session: Session, draft: JobDraft, principal: Principal, settings: ApiSettings, *, key: str | None, now: datetime
) -> Creation:
    """Create a job; a request with the same ``key`` gets the same job. Raises errors of invalid requests."""
    whole, model = complete(session, draft, principal, settings)
    request = job_request(whole, model, settings, data_set=data_set_of(session, whole, principal, keep=True))
    requested = asked_for(draft, settings)
    owner = principal.owner

    def make() -> str:
        check_cpu(session, request, settings)
        job_id = jobs.create(session, request, now=now, owner=owner, token_id=principal.token_id).id
        webhook = requested or of_original(session, draft, owner)
        if webhook:
            webhooks.attach(session, job_id, webhook)
        return job_id

    repeated = idempotency.IdempotentRequest.of(key, owner, _request_content(draft))
    job_id, is_new = idempotency.once(session, repeated, make, now=now)
    webhook = webhooks.of_job(session, job_id)
    shows_secret = is_new and requested is not None
    return Creation(job=jobs.get(session, job_id), is_new=is_new, webhook=webhook, shows_secret=shows_secret)


def data_set_of(session: Session, draft: JobDraft, principal: Principal, *, keep: bool = False) -> DataSet | None:
    """Return the data set that the request names; ``keep`` as in ``data_sets.get``.

    Raises DataSetNotFound and DataSetDeleted.
    """
    return None if draft.data is None else data_sets.get(session, draft.data, principal, keep=keep)


def check_cpu(session: Session, request: JobRequest, settings: ApiSettings) -> None:
    """Raise UnknownTarget if neither LLVM's releases nor the engines of a live worker know the target's CPU."""
    if targets.option_of(request.target, "-mcpu") is None:
        return
    living = workers.living(session, within_seconds=settings.worker_alive_seconds)
    native = {targets.option_of(worker.native_target.text, "-mcpu") for worker in living}
    foreign = {cpu for worker in living for cpu in worker.foreign_cpus}
    targets.check_cpu(request.target, {*foreign, *filter(None, native)})


def _request_content(draft: JobDraft) -> str:
    # With ``like``, null and an absent field differ.
    return json.dumps(draft.given_fields if draft.like else drafts.whole(draft), sort_keys=True)


def asked_for(draft: JobDraft, settings: ApiSettings) -> Webhook | None:
    """Return the requested webhook. Raises InvalidWebhook."""
    return _checked(draft.webhook, AllowedHosts.parse(settings.webhook_hosts)) if draft.webhook else None


def of_original(session: Session, draft: JobDraft, owner: str) -> Webhook | None:
    """Return the webhook of the ``like`` job, unless the request replaces it; not that of another owner's job."""
    if draft.like is None or "webhook" in draft.given_fields:
        return None
    return webhooks.of_job(session, draft.like) if jobs.get(session, draft.like).owner == owner else None


def _checked(draft: WebhookDraft, allowed: AllowedHosts) -> Webhook:
    destinations.check_host(destinations.parse(draft.url), allowed)
    secret = draft.secret or signatures.make_secret()
    signatures.check_secret(secret)
    return Webhook(url=draft.url, secret=secret)


_COPIED_FIELDS = (
    *("target", "threads", "tuner", "runner", "device", "precision", "bundle_format", "data", "priority", "group"),
)


def complete(session: Session, draft: JobDraft, principal: Principal, settings: ApiSettings) -> tuple[JobDraft, Model]:
    """Return the request completed from its ``like`` job, and its model.

    Options of that job that this one cannot use, such as those of another tuner, are dropped. Raises JobNotFound,
    ModelNotFound, and RequestValidationError if the combination is invalid.
    """
    if draft.like is None:
        return draft, owners.model(session, str(draft.model), principal)
    old = owners.job(session, draft.like, principal).request
    given = {name: value for name, value in draft.given_fields.items() if name != "like"}
    model = owners.model(session, draft.model or old.model_digest, principal)
    inherited = _given_fields(old, models.get(session, old.model_digest))
    if old.budget.total_seconds == default_total_seconds(old.budget, settings):
        del inherited["budget"]["total_seconds"]  # not requested: it follows the new budget
    if "input_shapes" in given:
        del inherited["frequencies"], inherited["padding"]  # of other sizes
    _drop_unusable(inherited, merge(inherited, given), old, model)
    try:
        return drafts.ADAPTER.validate_python({**merge(inherited, given), "model": model.digest}), model
    except ValidationError as error:
        found = [{**entry, "loc": ("body", *entry["loc"])} for entry in error.errors(include_url=False)]
        raise RequestValidationError(found) from None


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a request into a document: objects field by field, other values, including null, by replacement."""
    merged = dict(old)
    for name, value in new.items():
        was = old.get(name)
        merged[name] = merge(was, value) if isinstance(was, dict) and isinstance(value, dict) else value
    return merged


def _given_fields(request: JobRequest, model: Model) -> dict[str, Any]:
    """Return the request without fields that have their default."""
    options = _changed(request.tuner_options, TunerOptions())
    if model.facts.format is ModelFormat.IRMODULE:
        options.pop("rewrite", None)  # not requested: an IRModule is never rewritten
    return {
        **{name: getattr(request, name) for name in _COPIED_FIELDS},
        "budget": asdict(request.budget),
        "rpc": asdict(request.rpc) if request.rpc else None,
        "accuracy": _changed(request.accuracy, AccuracyGate()),
        "measure": _changed(request.measure, MeasureOptions()),
        "tuner_options": options,
        # Several sizes have one runtime, whatever was requested.
        **({} if request.sizes else {"runtimes": [str(runtime) for runtime in request.runtimes]}),
        "input_shapes": sizes.choices_of(request.sizes)
        or {name: list(of) for name, of in request.input_shapes.items()},
        "frequencies": sizes.frequencies_of(request.sizes),
        "padding": dict(request.padding),
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
    elif precision != Precision.INT8:
        del inherited["data"]
    if RunnerKind.NONE in (runner, old.runner):
        # Such a job has no budget of its own, only an unrequested default.
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
    if not known.issuperset(inherited["input_shapes"]):
        inherited.pop("frequencies", None)
        inherited.pop("padding", None)
    inherited["input_shapes"] = {name: shape for name, shape in inherited["input_shapes"].items() if name in known}
