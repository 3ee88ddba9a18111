"""What a tuning request may say: one field for each option, from which schema, form and command line are made.

A field's name, type and default are the request's own, as in the JSON of ``POST /v1/jobs``. Its metadata holds

* pydantic's words (``description``, ``ge``, ``max_length``, …), which the API checks requests with,
* ``choices``, the words that it may be,
* ``cli``, how the command line asks for it, and
* ``form``, how the dashboard's form does.

A new option is declared here, stored in ``domain.jobs`` if workers need it, and used where it matters.
"""

# ruff: noqa: RUF009 - _option makes fields, as dataclasses.field does

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args, get_type_hints

TUNERS = ("auto", "autotvm", "ansor", "metaschedule")
RUNNERS = ("local", "rpc", "none")
PRECISIONS = ("f32", "bf16", "fp16", "int8", "auto")
BUNDLE_FORMATS = ("shared", "object", "system-lib")
SEARCHES = ("xgb", "ga", "random", "gridsearch")
LOSSES = ("rank-binary", "rank", "reg")
FEATURES = ("knob", "itervar", "curve")
LAYOUTS = ("NCHW", "NHWC")
GROUP_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Fits into a path as it is."""

BUILD, SEARCH, MEASURE, JOB = "What to build", "How to search", "How to measure", "The job"
"""Sections of the command's help."""
PLACE, TUNING, TRIALS, ACCURACY, BOOKKEEPING, BUDGET = (
    "Where it runs",
    "Search",
    "How a trial is measured",
    "Accuracy of narrower precisions",
    "Bundle and bookkeeping",
    "Budget",
)
"""Sections of the form; those of other options than these have places of their own in it."""


Kind = Literal["number", "text", "choice", "lines", "secret"]


@dataclass(frozen=True)
class Cli:
    section: str
    help: str
    flag: str | None = None
    """``--field-name`` without one; a switch has ``--on/--off``."""
    metavar: str | None = None
    text: str | None = None
    """The form of its text: ``share``, ``shapes`` or ``labels``."""


@dataclass(frozen=True)
class Form:
    section: str
    label: str
    note: str = ""
    unset: str = ""
    """What an empty field means; that is its default, where it has one."""
    words: tuple[str, ...] = ()
    """Labels of its choices, which are their own otherwise."""
    runner: str | None = None
    """The one runner that it is for."""
    kind: Kind | None = None
    """Follows from the type without one."""


def _option(
    default: Any = None,
    *,
    cli: Cli | None = None,
    form: Form | None = None,
    choices: tuple[str, ...] = (),
    unsaid: bool = False,
    factory: Any = MISSING,
    **checks: Any,
) -> Any:
    """``unsaid``: null is the same as nothing, and no value of its own."""
    metadata = {"cli": cli, "form": form, "choices": choices, "unsaid": unsaid, **checks}
    if factory is not MISSING:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(kw_only=True)
class BudgetDraft:
    """The first limit reached ends tuning with the best found so far."""

    trials: int | None = _option(
        cli=Cli(SEARCH, "Most trials of the whole job."), form=Form(BUDGET, "Trials", "of all tasks together, at most")
    )
    seconds: float | None = _option(
        cli=Cli(SEARCH, "Longest tuning time."), form=Form(BUDGET, "Seconds", "of tuning, at most")
    )


@dataclass(kw_only=True)
class MeasureDraft:
    """How a trial is measured; names and meaning as in tvm.autotvm.LocalBuilder and LocalRunner."""

    number: int = _option(
        1,
        ge=1,
        le=1_000_000,
        description="Runs per repeat, at least.",
        cli=Cli(MEASURE, "Runs per repeat of a trial, at least."),
        form=Form(TRIALS, "Runs per repeat"),
    )
    repeat: int = _option(3, ge=1, le=1000, cli=Cli(MEASURE, "Repeats of a trial."), form=Form(TRIALS, "Repeats"))
    min_repeat_ms: int = _option(
        10,
        ge=0,
        le=60_000,
        cli=Cli(MEASURE, "Shortest repeat; number grows until it is reached."),
        form=Form(TRIALS, "Least of a repeat, ms"),
    )
    timeout: float = _option(
        10.0,
        gt=0,
        le=3600,
        description="Seconds to build, and again to measure, one trial.",
        cli=Cli(MEASURE, "Seconds to build, and to measure, one trial."),
        form=Form(TRIALS, "Timeout, seconds"),
    )
    n_parallel: int | None = _option(
        ge=1,
        le=1024,
        description="Builders at once; null: one per core.",
        cli=Cli(MEASURE, "Builders at once.  [default: one per core]"),
        form=Form(TRIALS, "Builders at once", unset="one per core"),
    )
    cooldown_interval: float = _option(
        0.0,
        ge=0,
        le=600,
        description="Seconds to wait after measuring one trial.",
        cli=Cli(MEASURE, "Seconds to wait after measuring one trial."),
        form=Form(TRIALS, "Pause, seconds"),
    )
    enable_cpu_cache_flush: bool = _option(
        False, cli=Cli(MEASURE, "Measure each trial with cold caches."), form=Form(TRIALS, "Flush caches")
    )


@dataclass(kw_only=True)
class TunerDraft:
    """Options of TVM's tuners; null keeps what suits the tuner and target. What the tuner does not have is refused."""

    n_trial: int | None = _option(
        ge=1,
        description="Most trials for one tuning task.",
        cli=Cli(SEARCH, "Most trials for one tuning task."),
        form=Form(TUNING, "Trials of one task", "at most", unset="no limit"),
    )
    early_stopping: int | None = _option(
        ge=1,
        description="Trials of one task without a better one.",
        cli=Cli(SEARCH, "Trials of one task without a better one before it is left."),
        form=Form(TUNING, "Early stopping", "trials without a better one"),
    )
    search: str | None = _option(
        max_length=100,
        choices=SEARCHES,
        description="AutoTVM: the tuner that proposes candidates.",
        cli=Cli(SEARCH, "AutoTVM: xgb (its default), ga, random or gridsearch."),
        form=Form(TUNING, "Search", "AutoTVM", unset="xgb"),
    )
    loss_type: str | None = _option(
        max_length=100,
        choices=LOSSES,
        description="AutoTVM's xgb: what its cost model minimizes.",
        cli=Cli(SEARCH, flag="--loss", help="AutoTVM's xgb: rank-binary (its default), rank or reg."),
        form=Form(TUNING, "Loss", "AutoTVM's cost model", unset="rank-binary"),
    )
    feature_type: str | None = _option(
        max_length=100,
        choices=FEATURES,
        description="AutoTVM's xgb: what its cost model sees of a candidate.",
        cli=Cli(SEARCH, "AutoTVM's xgb: knob (its default), itervar or curve."),
        form=Form(TUNING, "Features", "AutoTVM's cost model", unset="knob"),
    )
    layout: str | None = _option(
        max_length=100,
        choices=LAYOUTS,
        description="Ansor and MetaSchedule: the layout in which they see convolutions.",
        cli=Cli(SEARCH, "Ansor, MetaSchedule: NCHW or NHWC convolutions."),
        form=Form(TUNING, "Layout", "Ansor, MetaSchedule", unset="what suits the target"),
    )
    keep_layout: bool | None = _option(
        description="AutoTVM: search only memory layouts that neighbouring operators can agree on (the default); "
        "else those first.",
        cli=Cli(
            SEARCH,
            flag="--keep-layout/--free-layout",
            help="AutoTVM: hold to layouts that neighbours agree on (default), or not.",
        ),
        form=Form(TUNING, "Keep layouts", "AutoTVM: those that neighbours agree on", unset="yes"),
    )
    transfer: bool | None = _option(
        description="AutoTVM's xgb: teach the cost model with stored records of similar workloads first (the default).",
        cli=Cli(
            SEARCH, flag="--transfer/--no-transfer", help="AutoTVM's xgb: learn from records of similar tasks, or not."
        ),
        form=Form(TUNING, "Learn from records", "AutoTVM: of similar workloads", unset="yes"),
    )
    rewrite: bool | None = _option(
        description="Tune a rewritten network of the same function, such as with channels padded to vectors (the "
        "default); what is published is compared with the network as it was.",
        cli=Cli(
            SEARCH, flag="--rewrite/--no-rewrite", help="Tune a rewritten network of the same function (the default)."
        ),
        form=Form(TUNING, "Rewrite the network", "into the same function, faster to run", unset="yes"),
    )


@dataclass(kw_only=True)
class AccuracyDraft:
    """What a narrower precision must keep to be published; null leaves a limit at the precision's own default."""

    max_rel: float | None = _option(
        gt=0,
        le=1,
        description="Largest error of any element, as a share of its output's largest magnitude: 0.01 is 1 %.",
        cli=Cli(
            BUILD,
            flag="--max-error",
            metavar="1%|0.01",
            help="Of a narrower precision: largest error, of an output's largest value.",
            text="share",
        ),
        form=Form(ACCURACY, "Largest error", "0.01 is 1 %", unset="the precision's own"),
    )
    top1: float | None = _option(
        ge=0,
        le=1,
        description="Least share of a classifier's rows whose largest element stays at its place.",
        cli=Cli(
            BUILD,
            flag="--min-top1",
            metavar="99%|0.99",
            help="Of a narrower precision: rows of a classifier that keep their answer.",
            text="share",
        ),
        form=Form(ACCURACY, "Least top-1 agreement", "0 to 1", unset="the precision's own"),
    )


@dataclass(kw_only=True)
class RpcDraft:
    """Where devices are found; names and meaning as in tvm.autotvm.RPCRunner."""

    tracker: str | None = _option(
        unsaid=True,
        max_length=300,
        description="HOST:PORT of the TVM RPC tracker, as the worker reaches it.",
        cli=Cli(MEASURE, flag="--rpc-tracker", metavar="HOST:PORT", help="The tracker, for --runner rpc."),
        form=Form(PLACE, "RPC tracker", "HOST:PORT", runner="rpc"),
    )
    key: str | None = _option(
        unsaid=True,
        min_length=1,
        max_length=100,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="The devices' key.",
        cli=Cli(MEASURE, flag="--rpc-key", metavar="KEY", help="The key of the devices behind it."),
        form=Form(PLACE, "RPC key", "of the boards", runner="rpc"),
    )
    session_timeout: float = _option(
        60.0,
        gt=0,
        le=3600,
        description="Seconds that a session on a device may last.",
        cli=Cli(
            MEASURE, flag="--rpc-session-timeout", help="Seconds that a session on a device may last.  [default: 60]"
        ),
        form=Form(PLACE, "RPC session, seconds", runner="rpc"),
    )


@dataclass(kw_only=True)
class WebhookDraft:
    """A server to be told when the job has ended, as the Standard Webhooks specification has it."""

    url: str = _option(
        MISSING,
        max_length=2000,
        description="http:// or https://; a public address unless an admin allows it.",
        cli=Cli(JOB, flag="--webhook", metavar="URL", help="To be called when the job has ended."),
        form=Form(BOOKKEEPING, "Webhook", "https://… to be told of the end"),
    )
    secret: str | None = field(
        default=None,
        repr=False,
        metadata={
            "description": "Signs the messages: whsec_ and the base64 of 24 to 64 bytes. Null: one is made, and shown "
            "in this answer alone.",
            "cli": Cli(
                JOB,
                flag="--webhook-secret",
                metavar="whsec_…",
                help="Signs that call.  [default: TUNESMITH_WEBHOOK_SECRET, or a new one that is shown once]",
            ),
            "form": Form(BOOKKEEPING, "Webhook secret", "signs it: whsec_ and base64", kind="secret"),
        },
    )


@dataclass(kw_only=True)
class JobDraft:
    """What to tune, for what, and how."""

    model: str | None = _option(
        unsaid=True,
        min_length=1,
        max_length=200,
        description="Id or digest of an uploaded model; may be left out with `like`.",
    )
    like: str | None = _option(
        unsaid=True,
        min_length=1,
        max_length=200,
        description="Id of a job to take everything from that this request does not say; what it says of an object "
        "replaces those fields alone, and null sets one back.",
        cli=Cli(JOB, metavar="JOB", help="As that job was, but for what is said here."),
    )
    target: str = _option(
        "native",
        max_length=1000,
        description="'native' for the worker's own CPU, or a TVM target: 'llvm -mcpu=znver3', "
        "'llvm -mtriple=aarch64-linux-gnu', 'cuda -arch=sm_90'.",
        cli=Cli(
            BUILD,
            "'native' for the worker's CPU, or a TVM target: 'llvm -mcpu=znver3', "
            "'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72', 'cuda -arch=sm_90'.  [default: native]",
        ),
    )
    threads: int | None = _option(
        ge=1,
        le=1024,
        description="Null: every core of the device.",
        cli=Cli(BUILD, "Threads to run with.  [default: every core]"),
        form=Form(PLACE, "Threads", "that a run may use", unset="every core"),
    )
    tuner: str = _option(
        "auto",
        max_length=100,
        choices=TUNERS,
        cli=Cli(SEARCH, "auto, autotvm, ansor or metaschedule.  [default: auto]"),
    )
    runner: str = _option(
        "local",
        max_length=100,
        choices=RUNNERS,
        cli=Cli(
            MEASURE,
            "local; rpc, on devices behind a TVM RPC tracker; none, which builds and runs nothing.  [default: local]",
        ),
        form=Form(PLACE, "Runner", words=("local: on the worker", "rpc: behind a tracker", "none: build only")),
    )
    rpc: RpcDraft | None = _option(description="With runner 'rpc', and only then.")
    device: str | None = _option(
        min_length=1,
        max_length=500,
        description="With runner 'none': key of the device whose records to build with, as /v1/records and "
        "/v1/devices name it; the boards of an RPC key K have rpc/K/tTHREADS.",
        cli=Cli(MEASURE, metavar="KEY", help="For --runner none: the device whose records to use, such as rpc/pi4/t4."),
        form=Form(PLACE, "Records of device", "a device key", runner="none"),
    )
    precision: str = _option(
        "f32",
        max_length=100,
        choices=PRECISIONS,
        description="What the build computes with inside; inputs and outputs keep their dtypes. auto: the fastest that "
        "passes the accuracy gate, which f32 always does.",
        cli=Cli(BUILD, "Inside: f32, bf16, fp16 or int8; auto: the fastest that is accurate enough.  [default: f32]"),
    )
    accuracy: AccuracyDraft = _option(factory=AccuracyDraft)
    bundle_format: str = _option(
        "shared",
        max_length=100,
        choices=BUNDLE_FORMATS,
        description="What the bundle holds beside mod.so: object files, or a static library for places without dlopen.",
        cli=Cli(BUILD, "shared, object or system-lib.  [default: shared]"),
        form=Form(BOOKKEEPING, "Bundle", words=("shared library", "object files", "static system library")),
    )
    budget: BudgetDraft | None = _option(
        description="Null: TUNESMITH_DEFAULT_BUDGET_SECONDS, ten minutes unless the server says otherwise."
    )
    input_shapes: dict[str, list[int]] = _option(
        factory=dict,
        max_length=256,
        description="Required for inputs with dynamic dimensions.",
        cli=Cli(
            BUILD,
            flag="--input-shape",
            metavar="NAME:1,3,224,224",
            help="For dynamic dimensions; repeatable.",
            text="shapes",
        ),
    )
    measure: MeasureDraft = _option(factory=MeasureDraft)
    tuner_options: TunerDraft = _option(factory=TunerDraft)
    priority: int | None = _option(
        ge=0,
        le=9,
        description="0 runs first, 9 last.",
        cli=Cli(JOB, "0 runs first, 9 last.  [default: 5]"),
        form=Form(BOOKKEEPING, "Priority", "0 runs first, 9 last"),
    )
    group: str | None = _option(
        max_length=100,
        pattern=GROUP_NAME,
        description="Jobs that belong together; see /v1/groups.",
        cli=Cli(JOB, metavar="NAME", help="Of jobs that belong together."),
        form=Form(BOOKKEEPING, "Group", "of jobs that belong together"),
    )
    webhook: WebhookDraft | None = _option(description="Whom to tell of the job's end.")
    labels: dict[str, str] = _option(
        factory=dict,
        max_length=64,
        cli=Cli(JOB, flag="--label", metavar="NAME=VALUE", help="Repeatable.", text="labels"),
        form=Form(BOOKKEEPING, "Labels", "one NAME=VALUE a line", kind="lines"),
    )


@dataclass(frozen=True, kw_only=True)
class Option:
    """A leaf of ``JobDraft``."""

    path: str
    """Its place: ``measure.number``."""
    kind: type
    """Without None."""
    default: Any
    """None without one."""
    choices: tuple[str, ...]
    cli: Cli | None
    form: Form | None


def options(draft: type = JobDraft, prefix: str = "") -> Iterator[Option]:
    """Every option, in the order of declaration."""
    hints = get_type_hints(draft)
    for one in fields(draft):
        kind = bare(hints[one.name])
        if isinstance(kind, type) and is_dataclass(kind):
            yield from options(kind, f"{prefix}{one.name}.")
        else:
            said = one.metadata
            yield Option(
                path=f"{prefix}{one.name}",
                kind=kind,
                default=_default(one),
                choices=said.get("choices", ()),
                cli=said.get("cli"),
                form=said.get("form"),
            )


def bare(hint: Any) -> Any:
    """The type without None."""
    if isinstance(hint, types.UnionType):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


def _default(one: Field[Any]) -> Any:
    return None if one.default is MISSING else one.default
