"""Arguments of a tuning request and their JSON form."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, cast

from tunesmith import errors

if TYPE_CHECKING:
    from tunesmith.data_sets import DataSet
    from tunesmith.jobs import Job
    from tunesmith.models import Model


class Options(TypedDict, total=False):
    """Options of a tuning request; see ``POST /v1/jobs`` in the server's /docs. None means the server's default."""

    like: Job | str | None
    """A job, or its id, that supplies all options not given here."""
    target: str
    """``native``, or a TVM target such as ``llvm -mcpu=znver3`` or ``cuda -arch=sm_90``."""
    tuner: str
    """``auto``, ``autotvm``, ``ansor`` or ``metaschedule``."""
    budget: Budget | float | str | None
    """Seconds, ``"10m"``, ``"200 trials"`` or a Budget; the first limit reached ends tuning."""
    trials: int | None
    seconds: float | None
    """The limits as separate arguments, instead of ``budget``."""
    total_seconds: float | None
    """Limit of the job's running time, in seconds, besides a ``budget`` or in it."""
    input_shapes: Mapping[str, Sequence[int | Sequence[int] | Mapping[int, float]]]
    """For inputs with dynamic dimensions. A sequence of sizes, or a mapping from sizes to frequencies, in place of a
    size makes each of them an entry point of one bundle, at most 16."""
    frequencies: Sequence[Mapping[str, Any]]
    """With several sizes: observed shapes, with ``input_shapes`` and a ``count``. The budget is shared in
    proportion."""
    padding: Mapping[str, float]
    """With several sizes: value by input with which it may be padded to the next size."""
    data: DataSet | str | None
    """A data set, or its id or name: its rows judge and calibrate the builds."""
    threads: int | None
    runner: str
    """``local``, ``rpc`` or ``none``."""
    rpc: Mapping[str, Any] | None
    """``tracker`` (HOST:PORT), ``key`` and, if need be, ``session_timeout`` in seconds; with runner ``rpc``."""
    device: str | None
    """With runner ``none``: key of the device whose records to use, such as ``rpc/pi4/t4``."""
    precision: str
    """``f32``, ``bf16``, ``fp16``, ``int8``, or ``auto``: the fastest that passes ``accuracy``."""
    accuracy: Mapping[str, float] | None
    """Limits for reduced precision: ``max_rel``, ``top1``."""
    bundle_format: str
    """``shared``, ``wheel``, ``onnx``, ``static``, ``tvm``, ``object`` or ``system-lib``."""
    runtimes: Sequence[str]
    """What the bundle may run with: ``tvm``, which it always has, ``onnxruntime`` and ``openvino``; default all."""
    measure: Mapping[str, Any]
    """As TVM's LocalRunner: ``number``, ``repeat``, ``min_repeat_ms``, ``timeout``, …"""
    tuner_options: Mapping[str, Any]
    """``search``, ``early_stopping``, ``n_trial``, ``loss_type``, ``feature_type``, ``keep_layout``, ``transfer``,
    ``layout`` and ``rewrite``; options of another tuner are rejected."""
    priority: int | None
    """0 runs first, 9 last."""
    labels: Mapping[str, str]
    group: str | None
    """Name of a group of jobs."""
    webhook: Mapping[str, str] | None
    """``url`` to notify when the job ends, and its signing ``secret``; see docs/how-to/webhooks.md."""


class JobFilters(TypedDict, total=False):
    """Filters for listing jobs."""

    state: str | None
    """``queued``, ``running``, ``canceling``, ``succeeded``, ``failed`` or ``canceled``."""
    model: Model | str | None
    """A model, or its id or digest."""
    label: str | None
    """``NAME=VALUE``"""
    part_of: str | None
    """A job of several sizes: lists the jobs that tune one each, which are not listed otherwise."""
    group: str | None
    target: str | None
    tuner: str | None
    created_after: datetime | None
    created_before: datetime | None
    """With time zones."""
    text: str | None
    """Part of the model name, the group or a label's value, or a prefix of the job's id."""
    owner: str | None
    """Admins: only objects of this owner; default all."""


def draft(model: str | None, options: Options) -> dict[str, Any]:
    """Return the body of ``POST /v1/jobs`` for a model's id or digest; None for the model of ``like``."""
    given = {name: value for name, value in cast(Mapping[str, Any], options).items() if value is not None}
    budget = _budget(given)
    if "input_shapes" in given:
        given["input_shapes"] = {name: list(map(_dimension, shape)) for name, shape in given["input_shapes"].items()}
    if "frequencies" in given:
        given["frequencies"] = [
            {**each, "input_shapes": {name: list(shape) for name, shape in each["input_shapes"].items()}}
            for each in given["frequencies"]
        ]
    if "padding" in given:
        given["padding"] = dict(given["padding"])
    if "like" in given:
        given["like"] = given["like"] if isinstance(given["like"], str) else given["like"].id
    if "data" in given:
        given["data"] = given["data"] if isinstance(given["data"], str) else given["data"].id
    if model is None and "like" not in given:
        raise errors.InvalidInput("neither a model nor like= is given", hint="Give a model, or a job as like=.")
    return {**({"model": model} if model else {}), **({"budget": budget} if budget else {}), **given}


def _dimension(value: int | Sequence[int] | Mapping[int, float]) -> int | list[int] | dict[str, float]:
    if isinstance(value, Mapping):
        return {str(size): often for size, often in value.items()}
    return list(value) if isinstance(value, Sequence) else value


def _budget(given: dict[str, Any]) -> dict[str, float]:
    """Remove the budget from ``given`` and return its limits. Raises InvalidInput."""
    total: dict[str, float] = {"total_seconds": given.pop("total_seconds")} if "total_seconds" in given else {}
    limits: dict[str, float] = {name: given.pop(name) for name in ("trials", "seconds") if name in given}
    for seconds in (limits.get("seconds", 0.0), total.get("total_seconds", 0.0)):
        budget_of(seconds)  # rejects nan and infinity
    if "budget" not in given:
        return {**limits, **total}
    if limits:
        raise errors.InvalidInput(
            f"both budget and {' and '.join(limits)} are given", code="invalid_budget", hint="Set one of them."
        )
    found = budget_of(given.pop("budget"))
    parsed = {"trials": found.trials, "seconds": found.seconds, "total_seconds": found.total_seconds}
    return {name: value for name, value in parsed.items() if value is not None} | total


_SECONDS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_PART = re.compile(r"(?P<number>\d{1,15}(?:\.\d{1,15})?)\s*(?P<unit>[a-z]*)")
_HINT = "Give seconds as a number, or a text such as '300s', '10m', '1.5h', '200 trials' or '200 trials, 10m'."


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of tuning, which ends at the first one reached, with the best found so far."""

    trials: int | None = None
    seconds: float | None = None
    total_seconds: float | None = None
    """Limit of the job's running time, from import to publication."""


def parse_budget(text: str) -> Budget:
    """Parse ``300``, ``300s``, ``10m``, ``1h``, ``200 trials``, or two of them with a comma. Raises InvalidInput."""
    trials: int | None = None
    seconds: float | None = None
    for part in text.split(","):
        match = _PART.fullmatch(part.strip().lower())
        if match is None:
            raise _wrong(text)
        number, unit = match["number"], match["unit"].removesuffix("s") or "s"
        if unit == "trial" and trials is None and number.isdecimal():
            trials = int(number)
        elif unit in _SECONDS and seconds is None:
            seconds = float(number) * _SECONDS[unit]
        else:
            raise _wrong(text)
    return Budget(trials=trials, seconds=seconds)


def budget_of(value: Budget | float | str) -> Budget:
    """Convert the ``budget`` of ``Client.tune``; a number is seconds. Raises InvalidInput."""
    if isinstance(value, str):
        return parse_budget(value)
    found = value if isinstance(value, Budget) else Budget(seconds=float(value))
    for seconds in (found.seconds, found.total_seconds):
        if seconds is not None and not math.isfinite(seconds):
            raise _wrong(str(seconds))
    return found


def _wrong(text: str) -> errors.InvalidInput:
    return errors.InvalidInput(f"invalid budget: {text[:80]!r}", code="invalid_budget", hint=_HINT)
