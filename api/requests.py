"""What ``POST /v1/jobs`` takes, and how it becomes a JobRequest."""

from __future__ import annotations

import difflib
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api import shapes
from api.settings import ApiSettings
from domain import errors, targets
from domain.errors import InvalidRequest
from domain.jobs import Budget, JobRequest, MeasureOptions, Precision, RunnerKind, Tuner, TunerOptions
from domain.models import Model

Label = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Choice = TypeVar("Choice", bound=StrEnum)
_MOST_TRIALS = 10_000_000


class Draft(BaseModel):
    """Base of request bodies: a misspelled field is an error, not something to overlook."""

    model_config = ConfigDict(extra="forbid")


class BudgetDraft(Draft):
    """The first limit reached ends tuning with the best found so far."""

    trials: int | None = None
    seconds: float | None = None


class MeasureDraft(Draft):
    """How a trial is measured; names and meaning as in tvm.autotvm.LocalBuilder and LocalRunner."""

    number: int = Field(default=MeasureOptions.number, ge=1, le=1_000_000, description="Runs per repeat, at least.")
    repeat: int = Field(default=MeasureOptions.repeat, ge=1, le=1000)
    min_repeat_ms: int = Field(default=MeasureOptions.min_repeat_ms, ge=0, le=60_000)
    timeout: float = Field(
        default=MeasureOptions.timeout, gt=0, le=3600, description="Seconds to build, and again to measure, one trial."
    )
    enable_cpu_cache_flush: bool = MeasureOptions.enable_cpu_cache_flush
    n_parallel: int | None = Field(default=None, ge=1, le=1024, description="Builders at once; null: one per core.")


class TunerDraft(Draft):
    """Options of tvm.autotvm.tuner.XGBTuner; null keeps the default that suits the target."""

    early_stopping: int | None = Field(default=None, ge=1, description="Trials of one task without a better one.")
    n_trial: int | None = Field(default=None, ge=1, description="Most trials for one tuning task.")
    loss_type: Literal["reg", "rank-binary"] = TunerOptions.loss_type  # type: ignore[assignment]
    feature_type: Literal["knob", "itervar", "curve"] = TunerOptions.feature_type  # type: ignore[assignment]
    keep_layout: bool = Field(
        default=TunerOptions.keep_layout,
        description="Search only schedules that keep the memory layout of the untuned build; else those first.",
    )


class JobDraft(Draft):
    model: str = Field(min_length=1, max_length=200, description="Id or digest of an uploaded model.")
    target: str = Field(
        default=targets.NATIVE,
        max_length=1000,
        description="'native' for the worker's own CPU, or a TVM target such as 'llvm -mcpu=znver3'.",
    )
    threads: int | None = Field(default=None, ge=1, le=1024, description="Null: every core of the device.")
    tuner: str = Field(default=Tuner.AUTO, max_length=100, json_schema_extra={"enum": list(Tuner)})
    runner: str = Field(default=RunnerKind.LOCAL, max_length=100, json_schema_extra={"enum": list(RunnerKind)})
    precision: str = Field(default=Precision.F32, max_length=100, json_schema_extra={"enum": list(Precision)})
    budget: BudgetDraft | None = Field(
        default=None,
        description="Null: TUNESMITH_DEFAULT_BUDGET_SECONDS, ten minutes unless the server says otherwise.",
    )
    input_shapes: dict[str, Annotated[list[int], Field(max_length=16)]] = Field(
        default_factory=dict, max_length=256, description="Required for inputs with dynamic dimensions."
    )
    measure: MeasureDraft = Field(default_factory=MeasureDraft)
    tuner_options: TunerDraft = Field(default_factory=TunerDraft)
    priority: int | None = Field(default=None, ge=0, le=9, description="0 runs first, 9 last.")
    labels: dict[Label, Label] = Field(default_factory=dict, max_length=64)


def job_request(draft: JobDraft, model: Model, settings: ApiSettings) -> JobRequest:
    """Raises the InvalidRequest that names what is wrong."""
    shapes.check(model.facts, draft.input_shapes)
    return JobRequest(
        model_digest=model.digest,
        budget=_budget(draft.budget, settings),
        target=targets.check_text(draft.target),
        threads=draft.threads,
        tuner=_choice(Tuner, draft.tuner, "tuner", errors.UnknownTuner),
        runner=_choice(RunnerKind, draft.runner, "runner", errors.UnknownRunner),
        precision=_choice(Precision, draft.precision, "precision", errors.UnknownPrecision),
        input_shapes={name: tuple(shape) for name, shape in draft.input_shapes.items()},
        measure=MeasureOptions(**draft.measure.model_dump()),
        tuner_options=TunerOptions(**draft.tuner_options.model_dump()),
        priority=settings.default_priority if draft.priority is None else draft.priority,
        labels=dict(draft.labels),
    )


def _budget(draft: BudgetDraft | None, settings: ApiSettings) -> Budget:
    if draft is None:
        return Budget(seconds=settings.default_budget_seconds)
    if draft.trials is not None and draft.trials > _MOST_TRIALS:
        raise errors.InvalidBudget(f"a budget of {draft.trials} trials is more than the {_MOST_TRIALS} allowed")
    return Budget(trials=draft.trials, seconds=draft.seconds)


def _choice(kind: type[Choice], text: str, noun: str, error: type[InvalidRequest]) -> Choice:
    try:
        return kind(text)
    except ValueError:
        known = [member.value for member in kind]
        near = difflib.get_close_matches(text, known, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Use {' or '.join(map(repr, known))}."
        details: dict[str, Any] = {"known": known, "near_matches": near}
        raise error(f"unknown {noun} {text[:80]!r}", hint=hint, details=details) from None
