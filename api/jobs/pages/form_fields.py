"""Fields of the form for a new job, by section, except model, shapes, target, tuner, precision and budget.

The name of a field is its path in ``JobDraft``, such as ``measure.number``. An empty field means the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.dashboard import formats
from domain.jobs import Precision, RunnerKind, Tuner
from tuner.search import racing
from tunesmith import job_draft
from tunesmith.job_draft import Form, Kind, Option

_RACING = f"{formats.duration(racing.RIVAL_SECONDS)} or {racing.RIVAL_TRIALS} trials"


@dataclass(frozen=True, kw_only=True)
class Choice:
    value: str
    label: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Field:
    name: str
    label: str
    note: str = ""
    kind: Kind = "number"
    choices: tuple[Choice, ...] = ()
    default: str = ""
    """Placeholder: the value that an empty field stands for."""
    runner: RunnerKind | None = None
    """If set, the field is shown and sent only with this runner."""


@dataclass(frozen=True, kw_only=True)
class Section:
    title: str
    fields: tuple[Field, ...]


TUNERS = (
    Choice(
        value=Tuner.AUTO,
        label="Auto",
        note=f"selects a tuner; compares several from a budget of {_RACING}",
    ),
    Choice(value=Tuner.AUTOTVM, label="AutoTVM", note="templates; relay engine"),
    Choice(value=Tuner.ANSOR, label="Ansor", note="generated sketches; relay engine"),
    Choice(value=Tuner.METASCHEDULE, label="MetaSchedule", note="CPUs and GPUs; relax engine"),
)
PRECISIONS = (
    Choice(value=Precision.F32, label="f32", note="full precision"),
    Choice(value=Precision.BF16, label="bf16", note="bfloat16 products, float32 sums"),
    Choice(value=Precision.FP16, label="fp16", note="half precision"),
    Choice(value=Precision.INT8, label="int8", note="quantized, with an accuracy check"),
    Choice(value=Precision.AUTO, label="Auto", note="the fastest that is accurate enough"),
)
CUSTOM = "custom"
BUDGETS = (
    Choice(value="120", label="2 minutes", note="a quick test"),
    Choice(value="600", label="10 minutes", note="small models"),
    Choice(value="3600", label="1 hour", note="most models"),
    Choice(value="28800", label="8 hours", note="overnight"),
    Choice(value=CUSTOM, label="Custom", note="seconds, trials, or both"),
)
_SWITCH = (Choice(value="true", label="yes"), Choice(value="false", label="no"))


def _fields(section: str) -> tuple[Field, ...]:
    return tuple(
        _field(option, option.form)
        for option in job_draft.options()
        if option.form is not None and option.form.section == section
    )


def _field(option: Option, form: Form) -> Field:
    words = zip(option.choices, form.words or option.choices, strict=True)
    choices = _SWITCH if option.kind is bool else tuple(Choice(value=value, label=label) for value, label in words)
    kind: Kind = "choice" if choices else "number" if option.kind in (int, float) else "text"
    return Field(
        name=option.path,
        label=form.label,
        note=form.note,
        kind=form.kind or kind,
        choices=choices,
        default=form.unset or _default(option, choices),
        runner=RunnerKind(form.runner) if form.runner else None,
    )


def _default(option: Option, choices: Sequence[Choice]) -> str:
    if option.default is None:
        return ""
    if option.kind in (int, float):
        return f"{option.default:g}"
    value = str(option.default).lower()
    return next((choice.label for choice in choices if choice.value == value), value)


BUDGET_LIMITS = _fields(job_draft.BUDGET)
SECTIONS = tuple(
    Section(title=title, fields=_fields(title))
    for title in (
        job_draft.SIZES,
        job_draft.PLACE,
        job_draft.TUNING,
        job_draft.TRIALS,
        job_draft.ACCURACY,
        job_draft.BOOKKEEPING,
    )
)
ADVANCED = tuple(field for section in SECTIONS for field in section.fields)
NUMBERS = frozenset(field.name for field in (*ADVANCED, *BUDGET_LIMITS) if field.kind == "number")
LISTS = frozenset(option.path for option in job_draft.options() if option.kind == list[str])
SWITCHES = frozenset(field.name for field in ADVANCED if field.choices is _SWITCH)
