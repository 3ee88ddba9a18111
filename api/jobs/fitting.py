"""Validation of combinations of options: an option without effect is rejected."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from domain import errors, placing, targets
from domain.jobs import CALIBRATED, AccuracyGate, BundleFormat, JobRequest, Precision, RpcOptions, RunnerKind, Tuner
from domain.models import ModelFormat
from domain.targets import Device

_TRACKER = re.compile(r"(?P<host>\[[0-9A-Fa-f:]+\]|[A-Za-z0-9][A-Za-z0-9_.-]*):(?P<port>[0-9]{1,5})")
_ONLY: dict[str, tuple[Tuner, ...]] = {
    "search": (Tuner.AUTOTVM,),
    "loss_type": (Tuner.AUTOTVM,),
    "feature_type": (Tuner.AUTOTVM,),
    "keep_layout": (Tuner.AUTOTVM,),
    "transfer": (Tuner.AUTOTVM,),
    "layout": (Tuner.ANSOR, Tuner.METASCHEDULE),
}
"""Options that not every tuner has. With ``auto`` they apply to the tuners that have them."""
_COST_MODEL_OPTIONS = ("loss_type", "feature_type", "transfer")
_SEARCH_WITH_COST_MODEL = "xgb"


def check(request: JobRequest, *, tuner_options: Collection[str], measure: Collection[str], budget: bool) -> None:
    """Check a request; ``tuner_options`` and ``measure`` are the given names, ``budget`` whether one was given.

    Raises InvalidOption and UnsupportedTarget.
    """
    _check_tuner(request, tuner_options)
    _check_target(request, tuner_options)
    _check_rpc(request)
    _check_device(request)
    _check_precision(request)
    _check_data(request)
    if request.runner is RunnerKind.NONE and (budget or measure):
        what = "a budget" if budget else "measure options"
        raise errors.InvalidOption(
            f"runner 'none' measures nothing, so {what} would have no effect",
            hint="Remove them to build with stored records, or use runner 'local' or 'rpc'.",
        )


_JOINED = (BundleFormat.SHARED, BundleFormat.STATIC, BundleFormat.WHEEL, BundleFormat.ONNX)
"""Formats with a library, in which the entry points of several sizes are joined."""


def check_sizes(request: JobRequest, model_format: ModelFormat) -> None:
    """Check that several sizes can be joined to one bundle. Raises SizesNotSupported."""
    if not request.sizes:
        return
    what, hint = None, None
    if model_format is ModelFormat.IRMODULE:
        what = "IRModules have one size"
    elif request.runner is not RunnerKind.LOCAL:
        what, hint = f"runner {str(request.runner)!r} builds one size", "Use runner 'local', or one job for each size."
    elif targets.kind_of(request.target) == "cuda":
        what, hint = "bundles for cuda have one size", "Use a target of llvm, or one job for each size."
    elif request.bundle_format not in _JOINED:
        formats = ", ".join(repr(str(each)) for each in _JOINED)
        what = f"bundles of format {str(request.bundle_format)!r} have one size"
        hint = f"Use one of {formats}, or one job for each size."
    if what is not None:
        number = len(request.sizes)
        raise errors.SizesNotSupported(f"{what}, and the request has {number}", hint=hint, details={"sizes": number})


def _check_precision(request: JobRequest) -> None:
    precision = request.precision
    if request.accuracy != AccuracyGate():
        if precision is Precision.F32:
            raise errors.InvalidOption(
                "accuracy would have no effect: the limits apply to precisions other than f32",
                hint="Remove it, or use precision 'auto'.",
            )
        if request.runner is RunnerKind.NONE and targets.emulated_machine(request.target) is None:
            raise errors.InvalidOption(
                "accuracy would have no effect: runner 'none' compares nothing for this target",
                hint="Remove it, or use runner 'local' or 'rpc'.",
            )
    names = precision.tuners
    if request.tuner is not Tuner.AUTO and request.tuner not in names:
        raise errors.InvalidOption(
            f"{request.tuner} has no schedules for {precision}",
            hint=f"Use tuner {' or '.join(map(repr, map(str, names)))} or 'auto'.",
            details={"option": "precision", "tuners": [str(one) for one in names]},
        )
    if precision in CALIBRATED and targets.kind_of(request.target) == "cuda":
        raise errors.UnsupportedTarget(
            f"precision {precision} is supported on CPUs, not on cuda", hint="Use precision 'f32', 'fp16' or 'auto'."
        )


def _check_data(request: JobRequest) -> None:
    is_compared = request.runner is not RunnerKind.NONE or targets.emulated_machine(request.target) is not None
    if request.data is not None and not is_compared and request.precision not in CALIBRATED:
        raise errors.InvalidOption(
            "data would have no effect: runner 'none' compares nothing for this target",
            hint="Remove it, or use runner 'local' or 'rpc'.",
            details={"option": "data"},
        )


def without_effect(options: Collection[str], *, tuner: str, search: str) -> set[str]:
    """Return the options that ``check`` would reject for this tuner and search."""
    lacking = {name for name in options if tuner != Tuner.AUTO and tuner not in _ONLY.get(name, tuple(Tuner))}
    return lacking | (set(_COST_MODEL_OPTIONS).intersection(options) if search != _SEARCH_WITH_COST_MODEL else set())


def for_module(request: JobRequest, *, tuner_options: Collection[str]) -> JobRequest:
    """Return the request for an IRModule, which only MetaSchedule can tune, so ``auto`` means MetaSchedule.

    ``tuner_options`` are the given names. Raises InvalidOption.
    """
    if request.tuner not in (Tuner.AUTO, Tuner.METASCHEDULE):
        raise errors.InvalidOption(
            f"{request.tuner} tunes ONNX models, not IRModules", hint="Use tuner 'metaschedule' or 'auto'."
        )
    if request.precision is not Precision.F32:
        raise errors.InvalidOption(
            f"precision {str(request.precision)!r} would have no effect: the dtypes of a tensor function are fixed",
            hint="Remove it, or write the function in float16.",
        )
    if request.tuner_options.layout is not None:
        raise errors.InvalidOption(
            "layout would have no effect: the layout of a tensor function is fixed", hint="Remove it."
        )
    if "rewrite" in tuner_options and request.tuner_options.rewrite:
        raise errors.InvalidOption(
            "rewrite would have no effect: tensor functions are not rewritten", hint="Remove it."
        )
    return replace(request, tuner=Tuner.METASCHEDULE, tuner_options=replace(request.tuner_options, rewrite=False))


def _check_tuner(request: JobRequest, given: Collection[str]) -> None:
    tuner = request.tuner
    for name in sorted(given):
        fitting = _ONLY.get(name, tuple(Tuner))
        if tuner is not Tuner.AUTO and tuner not in fitting:
            raise errors.InvalidOption(
                f"tuner {tuner} does not support option {name}",
                hint=f"Remove it, or use tuner {' or '.join(map(repr, map(str, fitting)))}.",
                details={"option": name, "tuners": [str(one) for one in fitting]},
            )
    search = request.tuner_options.search
    if search != _SEARCH_WITH_COST_MODEL:
        unused = [name for name in _COST_MODEL_OPTIONS if name in given]
        if unused and not (unused == ["transfer"] and not request.tuner_options.transfer):
            raise errors.InvalidOption(
                f"search {search!r} has no cost model, so {unused[0]} would have no effect",
                hint=f"Remove it, or use search {_SEARCH_WITH_COST_MODEL!r}.",
                details={"option": unused[0]},
            )


def _check_target(request: JobRequest, given: Collection[str]) -> None:
    if targets.kind_of(request.target) != "cuda":
        return
    if "rewrite" in given and request.tuner_options.rewrite:
        raise errors.InvalidOption(
            "rewrite would have no effect: only networks for CPU targets are rewritten",
            hint="Remove it for cuda targets.",
        )
    if request.tuner in (Tuner.AUTOTVM, Tuner.ANSOR):
        raise errors.UnsupportedTarget(
            f"{request.tuner} compiles for llvm targets, not for cuda", hint="Use tuner 'metaschedule' or 'auto'."
        )
    if request.measure.enable_cpu_cache_flush:
        raise errors.InvalidOption("enable_cpu_cache_flush has no effect on a GPU", hint="Remove it for cuda targets.")


def _check_rpc(request: JobRequest) -> None:
    if request.runner is RunnerKind.RPC:
        placing.check_tracker(request)
    elif request.rpc is not None:
        raise errors.InvalidOption(f"rpc has no effect with runner {str(request.runner)!r}", hint="Use runner 'rpc'.")
    if request.rpc is not None:
        _check_tracker(request.rpc)


def _check_device(request: JobRequest) -> None:
    if request.device is None:
        return
    if request.runner is not RunnerKind.NONE:
        raise errors.InvalidOption(
            f"device has no effect with runner {str(request.runner)!r}: it names the records to build with",
            hint="Remove it, or use runner 'none'.",
        )
    recorded = Device.recorded(request.device, request.threads or 0).threads
    if request.threads not in (None, recorded):
        raise errors.InvalidOption(
            f"device {request.device[:80]!r} was measured with {recorded} threads, not {request.threads}",
            hint="Remove threads, or use the device key with that thread count.",
        )


def _check_tracker(rpc: RpcOptions) -> None:
    match = _TRACKER.fullmatch(rpc.tracker)
    if match is None or not 0 < int(match["port"]) < 2**16:
        raise errors.InvalidOption(
            f"{rpc.tracker[:80]!r} is not a tracker address", hint="Write HOST:PORT, such as boards:9190."
        )
