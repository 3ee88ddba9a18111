"""``tune``: upload, ask, watch, show what was gained, download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunesmith.cli import connecting, options, output, reports, watching

if TYPE_CHECKING:
    from tunesmith.resources import Job


def register(app: typer.Typer) -> None:
    app.command()(tune)


def tune(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="An ONNX model.")],
    target: Annotated[
        str, typer.Option(help="'native' for the worker's CPU, or a TVM target such as 'llvm -mcpu=znver3'.")
    ] = "native",
    tuner: Annotated[str, typer.Option(help="auto or autotvm.")] = "auto",
    trials: Annotated[int | None, typer.Option(help="Most trials of the whole job.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Longest tuning time.")] = None,
    input_shape: Annotated[
        list[str] | None, typer.Option(metavar="NAME:1,3,224,224", help="For dynamic dimensions; repeatable.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads to run with.  [default: every core]")] = None,
    precision: Annotated[str, typer.Option(help="f32.")] = "f32",
    runner: Annotated[str, typer.Option(help="local.")] = "local",
    number: Annotated[int | None, typer.Option(help="Runs per repeat of a trial, at least.")] = None,
    repeat: Annotated[int | None, typer.Option(help="Repeats of a trial.")] = None,
    min_repeat_ms: Annotated[
        int | None, typer.Option(help="Shortest repeat; number grows until it is reached.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds to build, and to measure, one trial.")] = None,
    early_stopping: Annotated[
        int | None, typer.Option(help="Trials of one task without a better one before it is left.")
    ] = None,
    n_trial: Annotated[int | None, typer.Option(help="Most trials for one tuning task.")] = None,
    enable_cpu_cache_flush: Annotated[bool, typer.Option(help="Measure each trial with cold caches.")] = False,
    keep_layout: Annotated[
        bool, typer.Option("--keep-layout/--free-layout", help="Search only what keeps the untuned memory layout.")
    ] = True,
    priority: Annotated[int | None, typer.Option(help="0 runs first, 9 last.  [default: 5]")] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Repeatable.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until the job ends.")] = True,
    to: Annotated[Path | None, typer.Option("-o", "--output", help="Download the bundle to this file.")] = None,
    as_json: options.Json = False,
) -> None:
    """Tune a model and show what was gained. Without a budget the server's default applies (10 minutes)."""
    measure = {"number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms, "timeout": timeout}
    measure["enable_cpu_cache_flush"] = enable_cpu_cache_flush
    request: dict[str, Any] = {
        "target": target,
        "tuner": tuner,
        "trials": trials,
        "seconds": seconds,
        "input_shapes": options.input_shapes(input_shape or []),
        "threads": threads,
        "labels": options.labels(label or []),
        "precision": precision,
        "runner": runner,
        "measure": {name: value for name, value in measure.items() if value is not None},
        "tuner_options": {"early_stopping": early_stopping, "n_trial": n_trial, "keep_layout": keep_layout},
        "priority": priority,
    }
    with connecting.client() as client:
        uploaded = client.upload(model, progress=connecting.upload_progress(model))
        job = client.tune(uploaded, **request)
        if wait:
            output.note(f"job {job.id}: {uploaded.name} for {target}")
            watching.until_finished(job)
            _show(job, to, as_json=as_json)
        else:
            _leave(job, as_json=as_json)


def _leave(job: Job, *, as_json: bool) -> None:
    if as_json:
        output.document(job.data)
        return
    output.line(job.id)
    output.note(f"look at it: tunesmith status {job.id} --watch")


def _show(job: Job, to: Path | None, *, as_json: bool) -> None:
    job.refresh()
    if job.state != "succeeded" and as_json:
        output.document({"job": job.data, "report": None, "artifact": None, "path": None})
    job.check()
    report, artifact = job.report(), job.artifact
    path = artifact.download(to) if to else None
    if as_json:
        place = str(path) if path else None
        output.document({"job": job.data, "report": report, "artifact": artifact.data, "path": place})
        return
    output.note("")
    reports.comparison(report)
    output.line(f"artifact {artifact.id}" + (f"  {path}" if path else f"  (get it: tunesmith pull {job.id} -o FILE)"))
