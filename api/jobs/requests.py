"""What ``POST /v1/jobs`` and ``POST /v1/jobs:plan`` take, and how it becomes a JobRequest."""

from __future__ import annotations

from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, StringConstraints, model_validator
from pydantic.json_schema import SkipJsonSchema

from api.jobs import choices, fitting, plain_text, shapes
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

Label = Annotated[str, StringConstraints(min_length=1, max_length=200)]
GROUP_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Fits into a path as it is."""
GroupName = Annotated[str, StringConstraints(max_length=100, pattern=GROUP_NAME)]
_Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
_MOST_TRIALS = 10_000_000
_Key = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")]
_Word = Annotated[str, StringConstraints(max_length=100)]


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("this is neither true nor false")
    return value


_Size = Annotated[int, BeforeValidator(_number)]


class Draft(BaseModel):
    """Base of request bodies: a misspelled field is an error, not something to overlook."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _means_what_it_says(cls, value: Any) -> Any:
        """pydantic would take false for 0."""
        for name, given in value.items() if isinstance(value, dict) else ():
            field = cls.model_fields.get(name)
            if field and bool not in (field.annotation, *get_args(field.annotation)):
                _number(given)
        return plain_text.check(value)


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
    cooldown_interval: float = Field(
        default=MeasureOptions.cooldown_interval, ge=0, le=600, description="Seconds to wait after measuring one trial."
    )


class TunerDraft(Draft):
    """Options of TVM's tuners; null keeps what suits the tuner and target. What the tuner does not have is refused."""

    search: _Word | None = Field(
        default=None,
        description="AutoTVM: the tuner that proposes candidates.",
        json_schema_extra={"enum": [*choices.SEARCHES, None]},
    )
    early_stopping: int | None = Field(default=None, ge=1, description="Trials of one task without a better one.")
    n_trial: int | None = Field(default=None, ge=1, description="Most trials for one tuning task.")
    loss_type: _Word | None = Field(
        default=None,
        description="AutoTVM's xgb: what its cost model minimizes.",
        json_schema_extra={"enum": [*choices.LOSSES, None]},
    )
    feature_type: _Word | None = Field(
        default=None,
        description="AutoTVM's xgb: what its cost model sees of a candidate.",
        json_schema_extra={"enum": [*choices.FEATURES, None]},
    )
    keep_layout: bool | None = Field(
        default=None,
        description="AutoTVM: search only memory layouts that neighbouring operators can agree on (the default); "
        "else those first.",
    )
    transfer: bool | None = Field(
        default=None,
        description="AutoTVM's xgb: teach the cost model with stored records of similar workloads first (the default).",
    )
    rewrite: bool | None = Field(
        default=None,
        description="Tune a rewritten network of the same function, such as with channels padded to vectors (the "
        "default); what is published is compared with the network as it was.",
    )
    layout: _Word | None = Field(
        default=None,
        description="Ansor and MetaSchedule: the layout in which they see convolutions.",
        json_schema_extra={"enum": [*choices.LAYOUTS, None]},
    )


class AccuracyDraft(Draft):
    """What a narrower precision must keep to be published; null leaves a limit at the precision's own default."""

    max_rel: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Largest error of any element, as a share of its output's largest magnitude: 0.01 is 1 %.",
    )
    top1: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Least share of a classifier's rows whose largest element stays at its place.",
    )


class RpcDraft(Draft):
    """Where devices are found; names and meaning as in tvm.autotvm.RPCRunner."""

    tracker: Annotated[str, StringConstraints(max_length=300)] | SkipJsonSchema[None] = Field(
        default=None, description="HOST:PORT of the TVM RPC tracker, as the worker reaches it."
    )
    key: _Key | SkipJsonSchema[None] = Field(default=None, description="The devices' key.")
    session_timeout: float = Field(
        default=RpcOptions.session_timeout, gt=0, le=3600, description="Seconds that a session on a device may last."
    )


class WebhookDraft(Draft):
    """A server to be told when the job has ended, as the Standard Webhooks specification has it."""

    url: str = Field(max_length=2000, description="http:// or https://; a public address unless an admin allows it.")
    secret: SecretStr | None = Field(
        default=None,
        description="Signs the messages: whsec_ and the base64 of 24 to 64 bytes. Null: one is made, and shown in this "
        "answer alone.",
    )


class JobDraft(Draft):
    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["model"]}, {"required": ["like"]}]})

    model: _Name | SkipJsonSchema[None] = Field(
        default=None, description="Id or digest of an uploaded model; may be left out with `like`."
    )
    like: _Name | SkipJsonSchema[None] = Field(
        default=None,
        description="Id of a job to take everything from that this request does not say; what it says of an object "
        "replaces those fields alone, and null sets one back.",
    )
    target: str = Field(
        default=targets.NATIVE,
        max_length=1000,
        description="'native' for the worker's own CPU, or a TVM target: 'llvm -mcpu=znver3', "
        "'llvm -mtriple=aarch64-linux-gnu', 'cuda -arch=sm_90'.",
    )
    threads: int | None = Field(default=None, ge=1, le=1024, description="Null: every core of the device.")
    tuner: str = Field(default=Tuner.AUTO, max_length=100, json_schema_extra={"enum": list(Tuner)})
    runner: str = Field(default=RunnerKind.LOCAL, max_length=100, json_schema_extra={"enum": list(RunnerKind)})
    rpc: RpcDraft | None = Field(default=None, description="With runner 'rpc', and only then.")
    device: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = Field(
        default=None,
        description="With runner 'none': key of the device whose records to build with, as /v1/records and "
        "/v1/devices name it; the boards of an RPC key K have rpc/K/tTHREADS.",
    )
    precision: str = Field(
        default=Precision.F32,
        max_length=100,
        description="What the build computes with inside; inputs and outputs keep their dtypes. auto: the fastest that "
        "passes the accuracy gate, which f32 always does.",
        json_schema_extra={"enum": list(Precision)},
    )
    accuracy: AccuracyDraft = Field(default_factory=AccuracyDraft)
    bundle_format: str = Field(
        default=BundleFormat.SHARED,
        max_length=100,
        description="What the bundle holds beside mod.so: object files, or a static library for places without dlopen.",
        json_schema_extra={"enum": list(BundleFormat)},
    )
    budget: BudgetDraft | None = Field(
        default=None,
        description="Null: TUNESMITH_DEFAULT_BUDGET_SECONDS, ten minutes unless the server says otherwise.",
    )
    input_shapes: dict[str, Annotated[list[_Size], Field(max_length=16)]] = Field(
        default_factory=dict, max_length=256, description="Required for inputs with dynamic dimensions."
    )
    measure: MeasureDraft = Field(default_factory=MeasureDraft)
    tuner_options: TunerDraft = Field(default_factory=TunerDraft)
    priority: int | None = Field(default=None, ge=0, le=9, description="0 runs first, 9 last.")
    labels: dict[Label, Label] = Field(default_factory=dict, max_length=64)
    group: GroupName | None = Field(default=None, description="Jobs that belong together; see /v1/groups.")
    webhook: WebhookDraft | None = Field(default=None, description="Whom to tell of the job's end.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """By itself, or with the job that it is like."""
        if self.like is None and self.model is None:
            raise ValueError("give a model, or like: a job to take it from")
        if self.like is None and self.rpc and not (self.rpc.tracker and self.rpc.key):
            raise ValueError("rpc needs both a tracker and a key")
        return self


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
        rpc=RpcOptions(**draft.rpc.model_dump()) if draft.rpc else None,
        device=draft.device,
        precision=choices.member(Precision, draft.precision, "precision", errors.UnknownPrecision),
        accuracy=AccuracyGate(**draft.accuracy.model_dump()),
        bundle_format=choices.member(BundleFormat, draft.bundle_format, "bundle_format", errors.InvalidOption),
        input_shapes={name: tuple(shape) for name, shape in draft.input_shapes.items()},
        measure=MeasureOptions(**draft.measure.model_dump()),
        tuner_options=_tuner_options(draft.tuner_options),
        priority=settings.default_priority if draft.priority is None else draft.priority,
        labels=dict(draft.labels),
        group=draft.group,
    )
    if model.facts.format is ModelFormat.IRMODULE:
        request = fitting.for_module(request, tuner_options=_given(draft.tuner_options))
    fitting.check(
        request,
        tuner_options=_given(draft.tuner_options),
        measure=draft.measure.model_fields_set,
        budget=draft.budget is not None,
    )
    return request


def _given(draft: TunerDraft) -> set[str]:
    return set(draft.model_dump(exclude_none=True))


def _tuner_options(draft: TunerDraft) -> TunerOptions:
    for name, known in (
        ("search", choices.SEARCHES),
        ("loss_type", choices.LOSSES),
        ("feature_type", choices.FEATURES),
        ("layout", choices.LAYOUTS),
    ):
        text = getattr(draft, name)
        if text is not None:
            choices.known(text, known, name, errors.InvalidOption)
    return TunerOptions(**draft.model_dump(exclude_none=True))


def _budget(draft: BudgetDraft | None, settings: ApiSettings) -> Budget:
    if draft is None:
        return Budget(seconds=settings.default_budget_seconds)
    if draft.trials is not None and draft.trials > _MOST_TRIALS:
        raise errors.InvalidBudget(f"a budget of {draft.trials} trials is more than the {_MOST_TRIALS} allowed")
    return Budget(trials=draft.trials, seconds=draft.seconds)
