"""Options of a tuning request: the source of the API's schema, the dashboard's form and the options of ``tune``.

The name, type and default of a field are those in the JSON of ``POST /v1/jobs``. Its metadata holds

* keywords of pydantic's ``Field`` (``description``, ``ge``, ``max_length``, …), with which the API validates requests,
* ``choices``, the allowed words,
* ``cli``, the option of the command line, and
* ``form``, the field of the dashboard's form.

A new option is declared here, stored in ``domain.jobs`` if workers need it, and used where it matters.
"""

# ruff: noqa: RUF009 - _option returns fields, like dataclasses.field

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args, get_type_hints

TUNERS = ("auto", "autotvm", "ansor", "metaschedule")
RUNNERS = ("local", "rpc", "none")
PRECISIONS = ("f32", "bf16", "fp16", "int8", "auto")
BUNDLE_FORMATS = ("shared", "wheel", "onnx", "static", "tvm", "object", "system-lib")
SEARCHES = ("xgb", "ga", "random", "gridsearch")
LOSSES = ("rank-binary", "rank", "reg")
FEATURES = ("knob", "itervar", "curve")
LAYOUTS = ("NCHW", "NHWC")
GROUP_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Needs no quoting in a URL path."""

BUILD, SEARCH, MEASURE, JOB = "Build options", "Search options", "Measurement options", "Job options"
"""Sections of the command's help."""
SIZES, PLACE, TUNING, TRIALS, ACCURACY, BOOKKEEPING, BUDGET = (
    "Several sizes",
    "Where it runs",
    "Search",
    "Trial measurement",
    "Accuracy at reduced precision",
    "Bundle and bookkeeping",
    "Budget",
)
"""Sections of the form. Options without a section are placed by the page's template."""


Kind = Literal["number", "text", "choice", "lines", "secret"]


@dataclass(frozen=True)
class Cli:
    section: str
    help: str
    flag: str | None = None
    """Default: ``--field-name``. A switch is written ``--on/--off``."""
    metavar: str | None = None
    text: str | None = None
    """How the text is parsed: ``share``, ``minutes`` (to seconds), ``shapes``, ``frequencies`` (of a file),
    ``padding``, ``labels`` or ``names``."""


@dataclass(frozen=True)
class Form:
    section: str
    label: str
    note: str = ""
    unset: str = ""
    """Placeholder of an empty field: the value that it stands for. A default of the option replaces it."""
    words: tuple[str, ...] = ()
    """Labels of the choices; empty to show the choices themselves."""
    runner: str | None = None
    """Shown only with this runner."""
    kind: Kind | None = None
    """Default: derived from the type of the option."""


Dimension = int | list[int] | dict[int, float]
"""A size, several sizes, or the frequency by size."""


def dimension(text: str) -> Dimension:
    """Parse ``4``, ``1/4/8``, or ``16@6/32@3`` with the frequency of each. Raises ValueError."""
    parts = [part.strip().partition("@") for part in text.split("/")]
    sizes = [int(size) for size, _, _ in parts]
    if not any(at for _, at, _ in parts):
        return sizes[0] if len(sizes) == 1 else sizes
    found = {size: float(often) for size, (_, _, often) in zip(sizes, parts, strict=True)}
    if len(found) < len(sizes):
        raise ValueError(f"a size is repeated in {text!r}")
    return found


def _option(
    default: Any = None,
    *,
    cli: Cli | None = None,
    form: Form | None = None,
    choices: tuple[str, ...] = (),
    null_means_absent: bool = False,
    factory: Any = MISSING,
    **checks: Any,
) -> Any:
    """Return a dataclass field; with ``null_means_absent``, null means the same as an absent field."""
    metadata = {"cli": cli, "form": form, "choices": choices, "null_means_absent": null_means_absent, **checks}
    if factory is not MISSING:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(kw_only=True)
class BudgetDraft:
    """The first limit of trials and seconds ends tuning with the best found so far. total_seconds limits the job."""

    trials: int | None = _option(
        cli=Cli(SEARCH, "Maximum number of trials of the job."), form=Form(BUDGET, "Trials", "maximum, all tasks")
    )
    seconds: float | None = _option(
        cli=Cli(SEARCH, "Maximum tuning time in seconds."), form=Form(BUDGET, "Seconds", "maximum tuning time")
    )
    total_seconds: float | None = _option(
        description="Limit of the job's running time, from import to publication. At the limit, the best verified "
        "build is published, or the job fails with time_limit. Null: the tuning budget and the server's "
        "TUNESMITH_DEFAULT_TOTAL_SECONDS.",
        cli=Cli(
            JOB,
            flag="--max-minutes",
            metavar="M",
            help="Maximum running time of the job, in minutes.  [default: the budget and an hour]",
            text="minutes",
        ),
        form=Form(BOOKKEEPING, "Total limit, seconds", "running time of the job", unset="the budget and an hour"),
    )


@dataclass(kw_only=True)
class MeasureDraft:
    """How a trial is measured; names and meaning as in tvm.autotvm.LocalBuilder and LocalRunner."""

    number: int = _option(
        1,
        ge=1,
        le=1_000_000,
        description="Minimum number of runs per repeat.",
        cli=Cli(MEASURE, "Minimum number of runs per repeat."),
        form=Form(TRIALS, "Runs per repeat"),
    )
    repeat: int = _option(3, ge=1, le=1000, cli=Cli(MEASURE, "Repeats per trial."), form=Form(TRIALS, "Repeats"))
    min_repeat_ms: int = _option(
        10,
        ge=0,
        le=60_000,
        cli=Cli(MEASURE, "Minimum duration of a repeat; --number is raised until it is reached."),
        form=Form(TRIALS, "Minimum repeat, ms"),
    )
    timeout: float = _option(
        10.0,
        gt=0,
        le=3600,
        description="Time limit in seconds for building a trial, and again for measuring it.",
        cli=Cli(MEASURE, "Seconds allowed to build a trial, and again to measure it."),
        form=Form(TRIALS, "Timeout, seconds"),
    )
    n_parallel: int | None = _option(
        ge=1,
        le=1024,
        description="Number of parallel builders; null: one per core.",
        cli=Cli(MEASURE, "Number of parallel builders.  [default: one per core]"),
        form=Form(TRIALS, "Parallel builders", unset="one per core"),
    )
    cooldown_interval: float = _option(
        0.0,
        ge=0,
        le=600,
        description="Seconds to wait after measuring a trial.",
        cli=Cli(MEASURE, "Seconds to wait after measuring a trial."),
        form=Form(TRIALS, "Pause, seconds"),
    )
    enable_cpu_cache_flush: bool = _option(
        False, cli=Cli(MEASURE, "Measure each trial with cold caches."), form=Form(TRIALS, "Flush caches")
    )


@dataclass(kw_only=True)
class TunerDraft:
    """Options of TVM's tuners. Null: a default for the tuner and target. Options of another tuner are rejected."""

    n_trial: int | None = _option(
        ge=1,
        description="Maximum number of trials per tuning task.",
        cli=Cli(SEARCH, "Maximum number of trials per tuning task."),
        form=Form(TUNING, "Trials per task", "maximum", unset="no limit"),
    )
    early_stopping: int | None = _option(
        ge=1,
        description="Stop a task after this many trials without improvement.",
        cli=Cli(SEARCH, "Stop a task after this many trials without improvement."),
        form=Form(TUNING, "Early stopping", "trials without improvement"),
    )
    search: str | None = _option(
        max_length=100,
        choices=SEARCHES,
        description="AutoTVM: the tuner that proposes candidates.",
        cli=Cli(SEARCH, "AutoTVM: search algorithm: xgb (default), ga, random or gridsearch."),
        form=Form(TUNING, "Search", "AutoTVM", unset="xgb"),
    )
    loss_type: str | None = _option(
        max_length=100,
        choices=LOSSES,
        description="AutoTVM's xgb: loss function of the cost model.",
        cli=Cli(SEARCH, flag="--loss", help="AutoTVM's xgb: loss function: rank-binary (default), rank or reg."),
        form=Form(TUNING, "Loss", "AutoTVM's cost model", unset="rank-binary"),
    )
    feature_type: str | None = _option(
        max_length=100,
        choices=FEATURES,
        description="AutoTVM's xgb: features of a candidate that the cost model uses.",
        cli=Cli(SEARCH, "AutoTVM's xgb: features: knob (default), itervar or curve."),
        form=Form(TUNING, "Features", "AutoTVM's cost model", unset="knob"),
    )
    layout: str | None = _option(
        max_length=100,
        choices=LAYOUTS,
        description="Ansor and MetaSchedule: memory layout of convolutions during the search.",
        cli=Cli(SEARCH, "Ansor, MetaSchedule: layout of convolutions, NCHW or NHWC."),
        form=Form(TUNING, "Layout", "Ansor, MetaSchedule", unset="depends on the target"),
    )
    keep_layout: bool | None = _option(
        description="AutoTVM: search only memory layouts that neighbouring operators can share (the default); "
        "if false, search these first.",
        cli=Cli(
            SEARCH,
            flag="--keep-layout/--free-layout",
            help="AutoTVM: search only layouts that neighbouring operators can share (default), or all.",
        ),
        form=Form(TUNING, "Keep layouts", "AutoTVM: those that neighbours can share", unset="yes"),
    )
    transfer: bool | None = _option(
        description="AutoTVM's xgb: first train the cost model on stored records of similar workloads (the default).",
        cli=Cli(
            SEARCH,
            flag="--transfer/--no-transfer",
            help="AutoTVM's xgb: train on records of similar workloads first (default), or not.",
        ),
        form=Form(TUNING, "Learn from records", "AutoTVM: of similar workloads", unset="yes"),
    )
    rewrite: bool | None = _option(
        description="Tune an equivalent rewritten network, for example with channels padded to whole vectors (the "
        "default). The published build is verified against the original network.",
        cli=Cli(
            SEARCH,
            flag="--rewrite/--no-rewrite",
            help="Tune an equivalent rewritten network (default), or the original.",
        ),
        form=Form(TUNING, "Rewrite the network", "into an equivalent, faster one", unset="yes"),
    )


@dataclass(kw_only=True)
class AccuracyDraft:
    """Limits that a build of reduced precision must meet to be published. Null: the precision's default."""

    max_rel: float | None = _option(
        gt=0,
        le=1,
        description="Maximum error of any element, as a share of the output's largest magnitude: 0.01 is 1 %.",
        cli=Cli(
            BUILD,
            flag="--max-error",
            metavar="1%|0.01",
            help="At reduced precision: maximum error, as a share of an output's largest value.",
            text="share",
        ),
        form=Form(ACCURACY, "Maximum error", "0.01 is 1 %", unset="the precision's default"),
    )
    top1: float | None = _option(
        ge=0,
        le=1,
        description="Minimum share of a classifier's rows whose top-1 class is that of the reference.",
        cli=Cli(
            BUILD,
            flag="--min-top1",
            metavar="99%|0.99",
            help="At reduced precision: minimum share of a classifier's rows that keep their top-1 class.",
            text="share",
        ),
        form=Form(ACCURACY, "Minimum top-1 agreement", "0 to 1", unset="the precision's default"),
    )


@dataclass(kw_only=True)
class RpcDraft:
    """Devices behind a TVM RPC tracker; names and meaning as in tvm.autotvm.RPCRunner."""

    tracker: str | None = _option(
        null_means_absent=True,
        max_length=300,
        description="HOST:PORT of the TVM RPC tracker, as the worker reaches it.",
        cli=Cli(MEASURE, flag="--rpc-tracker", metavar="HOST:PORT", help="With --runner rpc: the TVM RPC tracker."),
        form=Form(PLACE, "RPC tracker", "HOST:PORT", runner="rpc"),
    )
    key: str | None = _option(
        null_means_absent=True,
        min_length=1,
        max_length=100,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="Key under which the devices are registered at the tracker.",
        cli=Cli(MEASURE, flag="--rpc-key", metavar="KEY", help="With --runner rpc: key of the devices at the tracker."),
        form=Form(PLACE, "RPC key", "of the boards", runner="rpc"),
    )
    session_timeout: float = _option(
        60.0,
        gt=0,
        le=3600,
        description="Time limit of a session on a device, in seconds.",
        cli=Cli(
            MEASURE, flag="--rpc-session-timeout", help="Seconds that a session on a device may last.  [default: 60]"
        ),
        form=Form(PLACE, "RPC session, seconds", runner="rpc"),
    )


@dataclass(kw_only=True)
class WebhookDraft:
    """A URL to notify when the job ends, as the Standard Webhooks specification describes."""

    url: str = _option(
        MISSING,
        max_length=2000,
        description="http:// or https://; a public address unless an admin allows it.",
        cli=Cli(JOB, flag="--webhook", metavar="URL", help="URL to notify when the job ends."),
        form=Form(BOOKKEEPING, "Webhook", "https://… to notify when the job ends"),
    )
    secret: str | None = field(
        default=None,
        repr=False,
        metadata={
            "description": "Signing secret: whsec_ and the base64 of 24 to 64 bytes. Null: the server generates one "
            "and returns it in this response only.",
            "cli": Cli(
                JOB,
                flag="--webhook-secret",
                metavar="whsec_…",
                help="Signing secret.  [default: TUNESMITH_WEBHOOK_SECRET, or a generated one that is shown once]",
            ),
            "form": Form(BOOKKEEPING, "Webhook secret", "for signing: whsec_ and base64", kind="secret"),
        },
    )


@dataclass(kw_only=True)
class JobDraft:
    """A tuning request: the model, the target and how to tune."""

    model: str | None = _option(
        null_means_absent=True,
        min_length=1,
        max_length=200,
        description="Id or digest of an uploaded model; optional with `like`.",
    )
    like: str | None = _option(
        null_means_absent=True,
        min_length=1,
        max_length=200,
        description="Id of a job whose request supplies the fields that this one omits. In objects, only the given "
        "fields are replaced; null resets a field to its default.",
        cli=Cli(JOB, metavar="JOB", help="Copy the options of this job; options given here replace them."),
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
        description="Number of threads of a run; null: all cores of the device.",
        cli=Cli(BUILD, "Number of threads.  [default: all cores]"),
        form=Form(PLACE, "Threads", "of a run", unset="all cores"),
    )
    tuner: str = _option(
        "auto",
        max_length=100,
        choices=TUNERS,
        cli=Cli(SEARCH, "Tuner: auto, autotvm, ansor or metaschedule.  [default: auto]"),
    )
    runner: str = _option(
        "local",
        max_length=100,
        choices=RUNNERS,
        cli=Cli(
            MEASURE,
            "local: on the worker; rpc: on devices behind a TVM RPC tracker; none: build only.  [default: local]",
        ),
        form=Form(PLACE, "Runner", words=("local: on the worker", "rpc: behind a tracker", "none: build only")),
    )
    rpc: RpcDraft | None = _option(description="Required with runner 'rpc', rejected with any other.")
    device: str | None = _option(
        min_length=1,
        max_length=500,
        description="With runner 'none': key of the device whose records to use, as in /v1/records and /v1/devices. "
        "Boards with the RPC key K have the device key rpc/K/tTHREADS.",
        cli=Cli(MEASURE, metavar="KEY", help="With --runner none: device whose records to use, such as rpc/pi4/t4."),
        form=Form(PLACE, "Records of device", "a device key", runner="none"),
    )
    precision: str = _option(
        "f32",
        max_length=100,
        choices=PRECISIONS,
        description="Data type of the computation; inputs and outputs keep their dtypes. auto: the fastest that passes "
        "the accuracy gate, which f32 always does.",
        cli=Cli(
            BUILD,
            "Data type of the computation: f32, bf16, fp16, int8, or auto: the fastest that is accurate enough.  "
            "[default: f32]",
        ),
    )
    accuracy: AccuracyDraft = _option(factory=AccuracyDraft)
    bundle_format: str = _option(
        "shared",
        max_length=100,
        choices=BUNDLE_FORMATS,
        description="What the bundle contains besides the library: a Python wheel, an operator of ONNX Runtime, "
        "a static library, or what TVM loads: a shared library, object files, or a static library for systems without "
        "dlopen.",
        cli=Cli(
            BUILD, "Contents of the bundle: shared, wheel, onnx, static, tvm, object or system-lib.  [default: shared]"
        ),
        form=Form(
            BOOKKEEPING,
            "Bundle",
            words=(
                "library",
                "Python wheel",
                "ONNX Runtime operator",
                "static library",
                "files for TVM",
                "object files",
                "static system library",
            ),
        ),
    )
    runtimes: list[str] = _option(
        factory=lambda: ["tvm", "onnxruntime", "openvino"],
        max_length=8,
        description="What the bundle may run with: tvm, the compiled library, which every bundle has, onnxruntime, "
        "and openvino where the worker has it. If one of these is clearly faster in the benchmark, the bundle contains "
        "the model for it, too.",
        cli=Cli(
            BUILD,
            metavar="NAME,…",
            help="What the bundle may run with.  [default: tvm,onnxruntime,openvino, as far as installed]",
            text="names",
        ),
        form=Form(BOOKKEEPING, "Runtimes", "tvm, and others that may be faster", unset="tvm, onnxruntime, openvino"),
    )
    budget: BudgetDraft | None = _option(
        description="Null: the server's TUNESMITH_DEFAULT_BUDGET_SECONDS, ten minutes unless it is set."
    )
    input_shapes: dict[str, list[Dimension]] = _option(
        factory=dict,
        max_length=256,
        description="Required for inputs with dynamic dimensions. A dimension is a size, a list of sizes, or an object "
        "from each size to how often it occurs: several sizes become entry points of one bundle, at most 16. "
        "Dimensions of the same name in the model move together, so one of their inputs is enough.",
        cli=Cli(
            BUILD,
            flag="--input-shape",
            metavar="NAME:1/4/8,3,224,224",
            help="Shape of an input with dynamic dimensions; repeatable. Several values of a dimension, 1/4/8, become "
            "entry points of one bundle; 16@6/32@3 states how often each occurs.",
            text="shapes",
        ),
    )
    frequencies: list[dict[str, Any]] = _option(
        factory=list,
        max_length=10_000,
        description="With several sizes: shapes with which the model is run, and how often. Each counts for the size "
        "that serves it, and the budget is shared in proportion.",
        cli=Cli(
            BUILD,
            metavar="FILE.json",
            help='With several sizes: observed shapes, [{"input_shapes": {"ids": [1, 20]}, "count": 12}, …]. Sizes '
            "that serve more runs get more of the budget.",
            text="frequencies",
        ),
    )
    padding: dict[str, float] = _option(
        factory=dict,
        max_length=256,
        description="With several sizes: value by input with which it may be padded to the next size without changing "
        "the results.",
        cli=Cli(
            BUILD,
            flag="--pad",
            metavar="NAME=VALUE",
            help="With several sizes: the input may be padded with this value to the next size; repeatable.",
            text="padding",
        ),
        form=Form(
            SIZES, "Padding of inputs", "one NAME=VALUE per line: fills an input up to the next size", kind="lines"
        ),
    )
    data: str | None = _option(
        min_length=1,
        max_length=200,
        description="Id or name of a data set: its rows are compared with the reference beside seeded inputs, judge "
        "builds of reduced precision, calibrate int8 and bf16, and are timed.",
        cli=Cli(
            BUILD,
            metavar="NAME|FILE.npz",
            help="Your own rows: a data set, or a file that is added as one. They judge and calibrate builds.",
        ),
        form=Form(ACCURACY, "Data set", "its rows judge and calibrate builds", unset="seeded inputs alone"),
    )
    measure: MeasureDraft = _option(factory=MeasureDraft)
    tuner_options: TunerDraft = _option(factory=TunerDraft)
    priority: int | None = _option(
        ge=0,
        le=9,
        description="0 runs first, 9 last.",
        cli=Cli(JOB, "Priority: 0 runs first, 9 last.  [default: 5]"),
        form=Form(BOOKKEEPING, "Priority", "0 runs first, 9 last"),
    )
    group: str | None = _option(
        max_length=100,
        pattern=GROUP_NAME,
        description="Name of a group of jobs; see /v1/groups.",
        cli=Cli(JOB, metavar="NAME", help="Name of a group of jobs, to list or cancel them together."),
        form=Form(BOOKKEEPING, "Group", "name of a group of jobs"),
    )
    webhook: WebhookDraft | None = _option(description="URL to notify when the job ends.")
    labels: dict[str, str] = _option(
        factory=dict,
        max_length=64,
        cli=Cli(JOB, flag="--label", metavar="NAME=VALUE", help="Label to find the job by; repeatable.", text="labels"),
        form=Form(BOOKKEEPING, "Labels", "one NAME=VALUE per line", kind="lines"),
    )


@dataclass(frozen=True, kw_only=True)
class Option:
    """A single option, at any depth of ``JobDraft``."""

    path: str
    """Dotted path, such as ``measure.number``."""
    kind: type
    """The type without None."""
    default: Any
    """None for options without a default."""
    choices: tuple[str, ...]
    cli: Cli | None
    form: Form | None


def options(draft: type = JobDraft, prefix: str = "") -> Iterator[Option]:
    """Yield every option, in the order of declaration."""
    hints = get_type_hints(draft)
    for one in fields(draft):
        kind = bare(hints[one.name])
        if isinstance(kind, type) and is_dataclass(kind):
            yield from options(kind, f"{prefix}{one.name}.")
        else:
            metadata = one.metadata
            yield Option(
                path=f"{prefix}{one.name}",
                kind=kind,
                default=_default(one),
                choices=metadata.get("choices", ()),
                cli=metadata.get("cli"),
                form=metadata.get("form"),
            )


def bare(hint: Any) -> Any:
    """Return the type without None."""
    if isinstance(hint, types.UnionType):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


def _default(one: Field[Any]) -> Any:
    return None if one.default is MISSING else one.default
