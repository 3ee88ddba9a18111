"""What a tuning request may say, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, cast

from tunesmith import budgets, errors
from tunesmith.budgets import Budget

if TYPE_CHECKING:
    from tunesmith.jobs import Job
    from tunesmith.models import Model


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
    """``url`` to call when the job has ended and, to sign with, ``secret``; see docs/webhooks.md."""


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
    """Part of the model's name, the group or a label's value, or the beginning of the job's id."""
    owner: str | None
    """For admins: whose; all by default."""


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
        budgets.of(limits.get("seconds", 0.0))  # raises what it would of a budget
        return limits
    if limits:
        raise errors.InvalidInput(
            f"both budget and {' and '.join(limits)} are given", code="invalid_budget", hint="Give one of them."
        )
    found = budgets.of(given.pop("budget"))
    said = {"trials": found.trials, "seconds": found.seconds}
    return {name: value for name, value in said.items() if value is not None}
