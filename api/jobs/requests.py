"""Conversion of a request body to the JobRequest that is stored."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from typing import Any, TypeVar

from api.jobs import fitting, shapes
from api.jobs.drafts import JobDraft
from api.settings import ApiSettings
from domain import data_sets, errors, sizes, targets
from domain.artifacts import Runtime
from domain.data_sets import DataSet
from domain.errors import InvalidRequest
from domain.jobs import (
    CALIBRATED,
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
from domain.models import Model, ModelFacts, ModelFormat
from domain.sizes import Observed, Size
from tunesmith import job_draft
from tunesmith.job_draft import BudgetDraft, TunerDraft

_MOST_TRIALS = 10_000_000
_SECONDS_A_TRIAL = 10.0
"""What a trial adds to the default of a job's total limit."""


def job_request(draft: JobDraft, model: Model, settings: ApiSettings, *, data_set: DataSet | None = None) -> JobRequest:
    """Return the stored request. Raises the InvalidRequest that describes the invalid value or combination."""
    several = _sizes(draft, model.facts)
    input_shapes = {} if several else sizes.shapes_of(model.facts.inputs, draft.input_shapes)
    for each in [size.input_shapes for size in several] or [input_shapes]:
        shapes.check(model.facts, each)
        if data_set is not None:
            _check_data(data_set, model, draft, each)
    sizes.check_padding(model.facts.inputs, several, draft.padding)
    request = JobRequest(
        model_digest=model.digest,
        budget=_budget(draft.budget, settings),
        target=targets.check_text(draft.target),
        threads=draft.threads,
        tuner=member(Tuner, draft.tuner, "tuner", errors.UnknownTuner),
        runner=member(RunnerKind, draft.runner, "runner", errors.UnknownRunner),
        rpc=RpcOptions(**asdict(draft.rpc)) if draft.rpc else None,
        device=draft.device,
        precision=member(Precision, draft.precision, "precision", errors.UnknownPrecision),
        accuracy=AccuracyGate(**asdict(draft.accuracy)),
        bundle_format=member(BundleFormat, draft.bundle_format, "bundle_format", errors.InvalidOption),
        # What the sizes have in common is one library.
        runtimes=(Runtime.TVM,) if several else _runtimes(draft.runtimes),
        input_shapes=input_shapes,
        sizes=several,
        padding=dict(draft.padding),
        data=data_set.id if data_set else None,
        measure=MeasureOptions(**asdict(draft.measure)),
        tuner_options=_tuner_options(draft.tuner_options),
        priority=settings.default_priority if draft.priority is None else draft.priority,
        labels=dict(draft.labels),
        group=draft.group,
    )
    fitting.check_sizes(request, model.facts.format)
    if model.facts.format is ModelFormat.IRMODULE:
        request = fitting.for_module(request, tuner_options=set(_given(draft.tuner_options)))
    fitting.check(
        request,
        tuner_options=set(_given(draft.tuner_options)),
        measure=set(draft.given_fields.get("measure", ())),
        budget=draft.budget is not None and _limits_tuning(draft.budget),
    )
    return request


def _sizes(draft: JobDraft, facts: ModelFacts) -> tuple[Size, ...]:
    """Return the sizes of the request; none if it has one."""
    shapes.check_given(facts, draft.input_shapes)
    observed = [Observed(**each) for each in draft.frequencies]
    return sizes.expand(facts.inputs, draft.input_shapes, observed=observed)


def _check_data(data_set: DataSet, model: Model, draft: JobDraft, input_shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise DataMismatch if the model cannot take the rows, or none would be left to judge."""
    inputs = [replace(spec, shape=input_shapes.get(spec.name, spec.shape)) for spec in model.facts.inputs]
    found = data_sets.fit(data_set.facts, inputs, model.facts.outputs)
    data_sets.split(data_set.facts, found, calibrates=draft.precision in (*CALIBRATED, Precision.AUTO))


def _limits_tuning(draft: BudgetDraft) -> bool:
    return draft.total_seconds is None or draft.trials is not None or draft.seconds is not None


def _runtimes(names: Sequence[str]) -> tuple[Runtime, ...]:
    given = {member(Runtime, name, "runtime", errors.InvalidOption) for name in names}
    if Runtime.TVM not in given:
        raise errors.InvalidOption(
            "runtimes lack 'tvm'",
            hint="Add it: every bundle has the compiled library.",
            details={"option": "runtimes"},
        )
    return tuple(runtime for runtime in Runtime if runtime in given)


def _given(draft: TunerDraft) -> dict[str, Any]:
    return {name: value for name, value in asdict(draft).items() if value is not None}


def _tuner_options(draft: TunerDraft) -> TunerOptions:
    given = _given(draft)
    for option in job_draft.options(TunerDraft):
        if option.choices and option.path in given:
            known(given[option.path], option.choices, option.path, errors.InvalidOption)
    return TunerOptions(**given)


def _budget(draft: BudgetDraft | None, settings: ApiSettings) -> Budget:
    draft = draft or BudgetDraft(seconds=settings.default_budget_seconds)
    if draft.trials is not None and draft.trials > _MOST_TRIALS:
        raise errors.InvalidBudget(f"a budget of {draft.trials} trials exceeds the limit of {_MOST_TRIALS}")
    seconds = draft.seconds if _limits_tuning(draft) else settings.default_budget_seconds
    budget = Budget(trials=draft.trials, seconds=seconds, total_seconds=draft.total_seconds)
    return replace(budget, total_seconds=budget.total_seconds or default_total_seconds(budget, settings))


def default_total_seconds(budget: Budget, settings: ApiSettings) -> float:
    """Return the total limit of a job that requests none."""
    limits = [budget.seconds, None if budget.trials is None else budget.trials * _SECONDS_A_TRIAL]
    return settings.default_total_seconds + min(limit for limit in limits if limit is not None)


Choice = TypeVar("Choice", bound=StrEnum)


def member(kind: type[Choice], text: str, noun: str, error: type[InvalidRequest]) -> Choice:
    """Return the member of an enumeration. Raises ``error``, with near matches in its details."""
    return kind(known(text, [choice.value for choice in kind], noun, error))


def known(text: str, choices: Sequence[str], noun: str, error: type[InvalidRequest]) -> str:
    if text in choices:
        return text
    near = difflib.get_close_matches(text, choices, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Use {' or '.join(map(repr, choices))}."
    details: dict[str, Any] = {"known": list(choices), "near_matches": near}
    raise error(f"unknown {noun} {text[:80]!r}", hint=hint, details=details)
