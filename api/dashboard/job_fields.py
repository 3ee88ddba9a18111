"""The fields of the form for a new job beyond model, shapes, target, tuner, precision and budget, by sections.

A field's name is its place in ``JobDraft``: ``measure.number``. An empty one keeps what the service does by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from api.dashboard import formats
from api.jobs import choices
from domain.jobs import BundleFormat, MeasureOptions, Precision, RpcOptions, RunnerKind, Tuner, TunerOptions
from tuner import racing

Kind = Literal["number", "text", "choice", "lines", "secret"]

_MEASURE, _SEARCH = MeasureOptions(), TunerOptions()
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
    """What an empty field means, shown in its place."""
    runner: RunnerKind | None = None
    """The one runner that it is for; with others it is neither shown nor sent."""


@dataclass(frozen=True, kw_only=True)
class Section:
    title: str
    fields: tuple[Field, ...]


TUNERS = (
    Choice(
        value=Tuner.AUTO,
        label="Auto",
        note=f"picks one; budgets from {_RACING} on race several",
    ),
    Choice(value=Tuner.AUTOTVM, label="AutoTVM", note="templates; relay engine"),
    Choice(value=Tuner.ANSOR, label="Ansor", note="generated sketches; relay engine"),
    Choice(value=Tuner.METASCHEDULE, label="MetaSchedule", note="CPUs and GPUs; relax engine"),
)
PRECISIONS = (
    Choice(value=Precision.F32, label="f32", note="as the model is"),
    Choice(value=Precision.BF16, label="bf16", note="narrow products, wide sums"),
    Choice(value=Precision.FP16, label="fp16", note="half precision"),
    Choice(value=Precision.INT8, label="int8", note="quantized, gated by accuracy"),
    Choice(value=Precision.AUTO, label="Auto", note="the fastest that is accurate enough"),
)
CUSTOM = "custom"
BUDGETS = (
    Choice(value="120", label="2 minutes", note="a first look"),
    Choice(value="600", label="10 minutes", note="small models"),
    Choice(value="3600", label="1 hour", note="most models"),
    Choice(value="28800", label="8 hours", note="overnight"),
    Choice(value=CUSTOM, label="Custom", note="seconds, trials, or both"),
)
BUDGET_LIMITS = (
    Field(name="budget.seconds", label="Seconds", note="of tuning, at most"),
    Field(name="budget.trials", label="Trials", note="of all tasks together, at most"),
)


def _named(names: Sequence[str]) -> tuple[Choice, ...]:
    return tuple(Choice(value=name, label=name) for name in names)


_SWITCH = (Choice(value="true", label="yes"), Choice(value="false", label="no"))

SECTIONS = (
    Section(
        title="Where it runs",
        fields=(
            Field(name="threads", label="Threads", note="that a run may use", default="every core"),
            Field(
                name="runner",
                label="Runner",
                kind="choice",
                choices=(
                    Choice(value=RunnerKind.LOCAL, label="local: on the worker"),
                    Choice(value=RunnerKind.RPC, label="rpc: behind a tracker"),
                    Choice(value=RunnerKind.NONE, label="none: build only"),
                ),
                default="local: on the worker",
            ),
            Field(name="rpc.tracker", label="RPC tracker", kind="text", note="HOST:PORT", runner=RunnerKind.RPC),
            Field(name="rpc.key", label="RPC key", kind="text", note="of the boards", runner=RunnerKind.RPC),
            Field(
                name="rpc.session_timeout",
                label="RPC session, seconds",
                default=f"{RpcOptions.session_timeout:g}",
                runner=RunnerKind.RPC,
            ),
            Field(name="device", label="Records of device", kind="text", note="a device key", runner=RunnerKind.NONE),
        ),
    ),
    Section(
        title="Search",
        fields=(
            Field(name="tuner_options.n_trial", label="Trials of one task", note="at most", default="no limit"),
            Field(name="tuner_options.early_stopping", label="Early stopping", note="trials without a better one"),
            Field(
                name="tuner_options.search",
                label="Search",
                note="AutoTVM",
                kind="choice",
                choices=_named(choices.SEARCHES),
                default=_SEARCH.search,
            ),
            Field(
                name="tuner_options.loss_type",
                label="Loss",
                note="AutoTVM's cost model",
                kind="choice",
                choices=_named(choices.LOSSES),
                default=_SEARCH.loss_type,
            ),
            Field(
                name="tuner_options.feature_type",
                label="Features",
                note="AutoTVM's cost model",
                kind="choice",
                choices=_named(choices.FEATURES),
                default=_SEARCH.feature_type,
            ),
            Field(
                name="tuner_options.layout",
                label="Layout",
                note="Ansor, MetaSchedule",
                kind="choice",
                choices=_named(choices.LAYOUTS),
                default="what suits the target",
            ),
            Field(
                name="tuner_options.keep_layout",
                label="Keep layouts",
                note="AutoTVM: those that neighbours agree on",
                kind="choice",
                choices=_SWITCH,
                default="yes",
            ),
            Field(
                name="tuner_options.transfer",
                label="Learn from records",
                note="AutoTVM: of similar workloads",
                kind="choice",
                choices=_SWITCH,
                default="yes",
            ),
            Field(
                name="tuner_options.rewrite",
                label="Rewrite the network",
                note="into the same function, faster to run",
                kind="choice",
                choices=_SWITCH,
                default="yes",
            ),
        ),
    ),
    Section(
        title="How a trial is measured",
        fields=(
            Field(name="measure.number", label="Runs per repeat", default=f"{_MEASURE.number}"),
            Field(name="measure.repeat", label="Repeats", default=f"{_MEASURE.repeat}"),
            Field(name="measure.min_repeat_ms", label="Least of a repeat, ms", default=f"{_MEASURE.min_repeat_ms}"),
            Field(name="measure.timeout", label="Timeout, seconds", default=f"{_MEASURE.timeout:g}"),
            Field(name="measure.n_parallel", label="Builders at once", default="one per core"),
            Field(name="measure.cooldown_interval", label="Pause, seconds", default=f"{_MEASURE.cooldown_interval:g}"),
            Field(
                name="measure.enable_cpu_cache_flush",
                label="Flush caches",
                kind="choice",
                choices=_SWITCH,
                default="no",
            ),
        ),
    ),
    Section(
        title="Accuracy of narrower precisions",
        fields=(
            Field(name="accuracy.max_rel", label="Largest error", note="0.01 is 1 %", default="the precision's own"),
            Field(name="accuracy.top1", label="Least top-1 agreement", note="0 to 1", default="the precision's own"),
        ),
    ),
    Section(
        title="Bundle and bookkeeping",
        fields=(
            Field(
                name="bundle_format",
                label="Bundle",
                kind="choice",
                choices=(
                    Choice(value=BundleFormat.SHARED, label="shared library"),
                    Choice(value=BundleFormat.OBJECT, label="object files"),
                    Choice(value=BundleFormat.SYSTEM_LIB, label="static system library"),
                ),
                default="shared library",
            ),
            Field(name="priority", label="Priority", note="0 runs first, 9 last"),
            Field(name="group", label="Group", kind="text", note="of jobs that belong together"),
            Field(name="webhook.url", label="Webhook", kind="text", note="https://… to be told of the end"),
            Field(name="webhook.secret", label="Webhook secret", kind="secret", note="signs it: whsec_ and base64"),
            Field(name="labels", label="Labels", note="one NAME=VALUE a line", kind="lines"),
        ),
    ),
)
ADVANCED = tuple(field for section in SECTIONS for field in section.fields)
NUMBERS = frozenset(field.name for field in (*ADVANCED, *BUDGET_LIMITS) if field.kind == "number")
SWITCHES = frozenset(field.name for field in ADVANCED if field.choices is _SWITCH)
