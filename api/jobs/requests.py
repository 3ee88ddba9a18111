"""From what a tuning request says to the JobRequest that is stored."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from api.jobs import choices, fitting, shapes
from api.jobs.drafts import JobDraft
from api.settings import ApiSettings
from domain import errors, targets
from domain.jobs import (
    AccuracyGate,
    Budget,
    BundleFormat,
    JobRequest,
    MeasureOptions,
    Precision,
    RpcOptions,
    RunnerKind,
    Tuner,
    TunerOptions,
)
from domain.models import Model, ModelFormat
from tunesmith import job_draft
from tunesmith.job_draft import BudgetDraft, TunerDraft

_MOST_TRIALS = 10_000_000


def job_request(draft: JobDraft, model: Model, settings: ApiSettings) -> JobRequest:
    """Raises the InvalidRequest that names what is wrong, or what does not fit together."""
    shapes.check(model.facts, draft.input_shapes)
    request = JobRequest(
        model_digest=model.digest,
        budget=_budget(draft.budget, settings),
        target=targets.check_text(draft.target),
        threads=draft.threads,
        tuner=choices.member(Tuner, draft.tuner, "tuner", errors.UnknownTuner),
        runner=choices.member(RunnerKind, draft.runner, "runner", errors.UnknownRunner),
        rpc=RpcOptions(**asdict(draft.rpc)) if draft.rpc else None,
        device=draft.device,
        precision=choices.member(Precision, draft.precision, "precision", errors.UnknownPrecision),
        accuracy=AccuracyGate(**asdict(draft.accuracy)),
        bundle_format=choices.member(BundleFormat, draft.bundle_format, "bundle_format", errors.InvalidOption),
        input_shapes={name: tuple(shape) for name, shape in draft.input_shapes.items()},
        measure=MeasureOptions(**asdict(draft.measure)),
        tuner_options=_tuner_options(draft.tuner_options),
        priority=settings.default_priority if draft.priority is None else draft.priority,
        labels=dict(draft.labels),
        group=draft.group,
    )
    if model.facts.format is ModelFormat.IRMODULE:
        request = fitting.for_module(request, tuner_options=set(_given(draft.tuner_options)))
    fitting.check(
        request,
        tuner_options=set(_given(draft.tuner_options)),
        measure=set(draft.said.get("measure", ())),
        budget=draft.budget is not None,
    )
    return request


def _given(draft: TunerDraft) -> dict[str, Any]:
    return {name: value for name, value in asdict(draft).items() if value is not None}


def _tuner_options(draft: TunerDraft) -> TunerOptions:
    given = _given(draft)
    for option in job_draft.options(TunerDraft):
        if option.choices and option.path in given:
            choices.known(given[option.path], option.choices, option.path, errors.InvalidOption)
    return TunerOptions(**given)


def _budget(draft: BudgetDraft | None, settings: ApiSettings) -> Budget:
    if draft is None:
        return Budget(seconds=settings.default_budget_seconds)
    if draft.trials is not None and draft.trials > _MOST_TRIALS:
        raise errors.InvalidBudget(f"a budget of {draft.trials} trials is more than the {_MOST_TRIALS} allowed")
    return Budget(trials=draft.trials, seconds=draft.seconds)
