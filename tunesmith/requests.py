"""What a tuning request may say, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, cast

from tunesmith import errors

if TYPE_CHECKING:
    from tunesmith.jobs import Job
    from tunesmith.models import Model
import math
import re
from dataclasses import dataclass


class Options(TypedDict, total=False):
    """Everything but the model; see ``POST /v1/jobs`` in the server's /docs. None leaves an option to the server."""

    like: Job | str | None
    """A job, or its id, to take everything from that is not said here."""
    target: str
    """``native``, or a TVM target such as ``llvm -mcpu=znver3`` or ``cuda -arch=sm_90``."""
    tuner: str
    """``auto``, ``autotvm``, ``ansor`` or ``metaschedule``."""
    budget: Budget | float | str | None
    """Seconds, ``"10m"``, ``"200 trials"`` or a Budget; the first limit reached ends tuning."""
    trials: int | None
    seconds: float | None
    """The same in two words, in place of ``budget``."""
    input_shapes: Mapping[str, Sequence[int]]
    """For inputs with dynamic dimensions."""
    threads: int | None
    runner: str
    """``local``, ``rpc`` or ``none``."""
    rpc: Mapping[str, Any] | None
    """``tracker`` (HOST:PORT), ``key`` and, if need be, ``session_timeout`` in seconds; with runner ``rpc``."""
    device: str | None
    """With runner ``none``: key of the device whose records to build with, such as ``rpc/pi4/t4``."""
    precision: str
    """``f32``, ``bf16``, ``fp16``, ``int8``, or ``auto``: the fastest that passes ``accuracy``."""
    accuracy: Mapping[str, float] | None
    """What a narrower precision must keep: ``max_rel``, ``top1``."""
    bundle_format: str
    """``shared``, ``object`` or ``system-lib``."""
    measure: Mapping[str, Any]
    """As TVM's LocalRunner: ``number``, ``repeat``, ``min_repeat_ms``, ``timeout``, …"""
    tuner_options: Mapping[str, Any]
    """``search``, ``early_stopping``, ``n_trial``, ``loss_type``, ``feature_type``, ``keep_layout``, ``transfer``,
    ``layout`` and ``rewrite``; what the tuner does not have is refused."""
    priority: int | None
    """0 runs first, 9 last."""
    labels: Mapping[str, str]
    group: str | None
    """A name that jobs share which belong together."""
    webhook: Mapping[str, str] | None
    """``url`` to call when the job has ended and, to sign with, ``secret``; see docs/how-to/webhooks.md."""


class JobFilters(TypedDict, total=False):
    """Which jobs to list."""

    state: str | None
    """``queued``, ``running``, ``canceling``, ``succeeded``, ``failed`` or ``canceled``."""
    model: Model | str | None
    """Or its id or digest."""
    label: str | None
    """``NAME=VALUE``"""
    group: str | None
    target: str | None
    tuner: str | None
    created_after: datetime | None
    created_before: datetime | None
    """With their time zones."""
    text: str | None
    """Part of the model name, the group or a label's value, or a prefix of the job's id."""
    owner: str | None
    """Admins: only objects of this owner; default all."""


def draft(model: str | None, options: Options) -> dict[str, Any]:
    """The body of ``POST /v1/jobs`` for a model's id or digest, or for that of the job it is to be like."""
    given = {name: value for name, value in cast(Mapping[str, Any], options).items() if value is not None}
    budget = _budget(given)
    if "input_shapes" in given:
        given["input_shapes"] = {name: list(shape) for name, shape in given["input_shapes"].items()}
    if "like" in given:
        given["like"] = given["like"] if isinstance(given["like"], str) else given["like"].id
    elif model is None:
        raise errors.InvalidInput("neither a model nor a job is named", hint="Name a model, or like= a job.")
    return {**({"model": model} if model else {}), **({"budget": budget} if budget else {}), **given}


def _budget(given: dict[str, Any]) -> dict[str, float]:
    """Taken out of ``given``."""
    limits: dict[str, float] = {name: given.pop(name) for name in ("trials", "seconds") if name in given}
    if "budget" not in given:
        budget_of(limits.get("seconds", 0.0))  # raises what it would of a budget
        return limits
    if limits:
        raise errors.InvalidInput(
            f"both budget and {' and '.join(limits)} are given", code="invalid_budget", hint="Set one of them."
        )
    found = budget_of(given.pop("budget"))
    said = {"trials": found.trials, "seconds": found.seconds}
    return {name: value for name, value in said.items() if value is not None}


_SECONDS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_PART = re.compile(r"(?P<number>\d{1,15}(?:\.\d{1,15})?)\s*(?P<unit>[a-z]*)")
_HINT = "Write seconds as a number, or as in '300s', '10m', '1.5h', '200 trials' or '200 trials, 10m'."


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Tuning ends at the first limit reached, with the best found so far."""

    trials: int | None = None
    seconds: float | None = None


def parse_budget(text: str) -> Budget:
    """``300``, ``300s``, ``10m``, ``1h``, ``200 trials``, or two of them with a comma. Raises InvalidInput."""
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
    """Of anything that ``Client.tune`` takes: a number is seconds. Raises InvalidInput."""
    if isinstance(value, str):
        return parse_budget(value)
    found = value if isinstance(value, Budget) else Budget(seconds=float(value))
    if found.seconds is not None and not math.isfinite(found.seconds):
        raise _wrong(str(found.seconds))
    return found


def _wrong(text: str) -> errors.InvalidInput:
    return errors.InvalidInput(f"budget {text[:80]!r} cannot be read", code="invalid_budget", hint=_HINT)
