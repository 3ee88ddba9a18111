"""The options of ``tune`` that make up a request, in the groups that its help shows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tunesmith.cli import completion, options

_Texts = list[str] | None


@dataclass(frozen=True, kw_only=True)
class Build:
    """What to build."""

    target: Annotated[
        str | None,
        typer.Option(
            help="'native' for the worker's CPU, or a TVM target: 'llvm -mcpu=znver3', "
            "'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72', 'cuda -arch=sm_90'.  [default: native]"
        ),
    ] = None
    threads: Annotated[int | None, typer.Option(help="Threads to run with.  [default: every core]")] = None
    precision: Annotated[
        str | None,
        typer.Option(
            help="Inside: f32, bf16, fp16 or int8; auto: the fastest that is accurate enough.  [default: f32]",
            autocompletion=completion.precisions,
        ),
    ] = None
    max_error: Annotated[
        str | None,
        typer.Option(metavar="1%|0.01", help="Of a narrower precision: largest error, of an output's largest value."),
    ] = None
    min_top1: Annotated[
        str | None,
        typer.Option(metavar="99%|0.99", help="Of a narrower precision: rows of a classifier that keep their answer."),
    ] = None
    bundle_format: Annotated[
        str | None,
        typer.Option(help="shared, object or system-lib.  [default: shared]", autocompletion=completion.bundle_formats),
    ] = None
    input_shape: Annotated[
        _Texts, typer.Option(metavar="NAME:1,3,224,224", help="For dynamic dimensions; repeatable.")
    ] = None

    def request(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "threads": self.threads,
            "precision": self.precision,
            "accuracy": self._accuracy(),
            "bundle_format": self.bundle_format,
            "input_shapes": options.input_shapes(self.input_shape or []) or None,
        }

    def _accuracy(self) -> dict[str, float] | None:
        limits = {
            "max_rel": options.share(self.max_error, "--max-error"),
            "top1": options.share(self.min_top1, "--min-top1"),
        }
        return _given(limits) or None


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to search."""

    tuner: Annotated[
        str | None,
        typer.Option(help="auto, autotvm, ansor or metaschedule.  [default: auto]", autocompletion=completion.tuners),
    ] = None
    trials: Annotated[int | None, typer.Option(help="Most trials of the whole job.")] = None
    seconds: Annotated[float | None, typer.Option(help="Longest tuning time.")] = None
    n_trial: Annotated[int | None, typer.Option(help="Most trials for one tuning task.")] = None
    early_stopping: Annotated[
        int | None, typer.Option(help="Trials of one task without a better one before it is left.")
    ] = None
    search: Annotated[str | None, typer.Option(help="AutoTVM: xgb (its default), ga, random or gridsearch.")] = None
    loss: Annotated[str | None, typer.Option(help="AutoTVM's xgb: rank-binary (its default), rank or reg.")] = None
    feature_type: Annotated[str | None, typer.Option(help="AutoTVM's xgb: knob (its default), itervar or curve.")] = (
        None
    )
    keep_layout: Annotated[
        bool | None,
        typer.Option(
            "--keep-layout/--free-layout", help="AutoTVM: hold to layouts that neighbours agree on (default), or not."
        ),
    ] = None
    layout: Annotated[str | None, typer.Option(help="Ansor, MetaSchedule: NCHW or NHWC convolutions.")] = None
    transfer: Annotated[
        bool | None,
        typer.Option("--transfer/--no-transfer", help="AutoTVM's xgb: learn from records of similar tasks, or not."),
    ] = None
    rewrite: Annotated[
        bool | None,
        typer.Option("--rewrite/--no-rewrite", help="Tune a rewritten network of the same function (the default)."),
    ] = None

    def request(self) -> dict[str, Any]:
        chosen = {
            "search": self.search,
            "early_stopping": self.early_stopping,
            "n_trial": self.n_trial,
            "loss_type": self.loss,
            "feature_type": self.feature_type,
            "keep_layout": self.keep_layout,
            "transfer": self.transfer,
            "layout": self.layout,
            "rewrite": self.rewrite,
        }
        return {
            "tuner": self.tuner,
            "trials": self.trials,
            "seconds": self.seconds,
            "tuner_options": _given(chosen) or None,
        }


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How to measure."""

    runner: Annotated[
        str | None,
        typer.Option(
            help="local; rpc, on devices behind a TVM RPC tracker; none, which builds and runs nothing."
            "  [default: local]",
            autocompletion=completion.runners,
        ),
    ] = None
    rpc_tracker: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The tracker, for --runner rpc.")] = None
    rpc_key: Annotated[str | None, typer.Option(metavar="KEY", help="The key of the devices behind it.")] = None
    rpc_session_timeout: Annotated[
        float | None, typer.Option(help="Seconds that a session on a device may last.  [default: 60]")
    ] = None
    device: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="For --runner none: the device whose records to use, such as rpc/pi4/t4."),
    ] = None
    number: Annotated[int | None, typer.Option(help="Runs per repeat of a trial, at least.")] = None
    repeat: Annotated[int | None, typer.Option(help="Repeats of a trial.")] = None
    min_repeat_ms: Annotated[int | None, typer.Option(help="Shortest repeat; number grows until it is reached.")] = None
    timeout: Annotated[float | None, typer.Option(help="Seconds to build, and to measure, one trial.")] = None
    n_parallel: Annotated[int | None, typer.Option(help="Builders at once.  [default: one per core]")] = None
    cooldown_interval: Annotated[float | None, typer.Option(help="Seconds to wait after measuring one trial.")] = None
    enable_cpu_cache_flush: Annotated[
        bool, typer.Option("--enable-cpu-cache-flush", help="Measure each trial with cold caches.")
    ] = False

    def request(self) -> dict[str, Any]:
        return {"runner": self.runner, "rpc": self._rpc(), "device": self.device, "measure": self._measure() or None}

    def _measure(self) -> dict[str, Any]:
        return _given(
            {
                "number": self.number,
                "repeat": self.repeat,
                "min_repeat_ms": self.min_repeat_ms,
                "timeout": self.timeout,
                "n_parallel": self.n_parallel,
                "cooldown_interval": self.cooldown_interval,
                "enable_cpu_cache_flush": self.enable_cpu_cache_flush or None,
            }
        )

    def _rpc(self) -> dict[str, Any] | None:
        named = _given({"tracker": self.rpc_tracker, "key": self.rpc_key, "session_timeout": self.rpc_session_timeout})
        if named and not (self.rpc_tracker and self.rpc_key):
            raise typer.BadParameter("--rpc-tracker HOST:PORT and --rpc-key KEY go together")
        return named or None


@dataclass(frozen=True, kw_only=True)
class Queueing:
    """The job."""

    like: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="As that job was, but for what is said here.", autocompletion=completion.jobs),
    ] = None
    group: Annotated[str | None, typer.Option(metavar="NAME", help="Of jobs that belong together.")] = None
    priority: Annotated[int | None, typer.Option(help="0 runs first, 9 last.  [default: 5]")] = None
    label: Annotated[_Texts, typer.Option(metavar="NAME=VALUE", help="Repeatable.")] = None
    webhook: Annotated[str | None, typer.Option(metavar="URL", help="To be called when the job has ended.")] = None
    webhook_secret: Annotated[
        str | None,
        typer.Option(
            metavar="whsec_…",
            help="Signs that call.  [default: TUNESMITH_WEBHOOK_SECRET, or a new one that is shown once]",
        ),
    ] = None

    def request(self) -> dict[str, Any]:
        return {
            "like": self.like,
            "group": self.group,
            "priority": self.priority,
            "labels": options.labels(self.label or []) or None,
            "webhook": self._webhook(),
        }

    @property
    def secret(self) -> str | None:
        """Of the environment only where nothing is said: it may stand there for jobs without a webhook, too."""
        return self.webhook_secret or os.environ.get("TUNESMITH_WEBHOOK_SECRET") or None

    def _webhook(self) -> dict[str, Any] | None:
        if self.webhook:
            return _given({"url": self.webhook, "secret": self.secret})
        if self.webhook_secret is not None:
            raise typer.BadParameter("--webhook-secret signs the call of --webhook URL, which is not given")
        return None


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
