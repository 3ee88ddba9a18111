"""``tune``: upload a model, submit a job, follow it, show the result and download the bundle."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunesmith import errors, operator_spec
from tunesmith.cli import connecting, data_commands, options, output, reports, request_options
from tunesmith.cli.request_options import Asked

if TYPE_CHECKING:
    from tunesmith.artifacts import Artifact
    from tunesmith.client import Client
    from tunesmith.jobs import Job
    from tunesmith.models import Model

_EPILOG = """\b
Examples:
  tunesmith tune net.onnx --seconds 300 -o net.tar
  tunesmith tune net.onnx --dry-run
  tunesmith tune net.onnx --input-shape x:1,3,224,224 --threads 4
  tunesmith tune net.onnx --precision auto --max-error 2%
  tunesmith tune net.onnx --precision int8 --data val.npz
  tunesmith tune net.onnx --tuner ansor --trials 2000 --no-wait
  tunesmith tune --like JOB --seconds 3600
  tunesmith tune --operator 'matmul x=128,768 w=768,768'
\b
All options and their combinations: docs/reference/tuning.md.
"""
_TURN_SECONDS = 2.0
"""Interval between two requests for a plan."""


def register(app: typer.Typer) -> None:
    app.command(cls=request_options.GroupedCommand, epilog=_EPILOG)(request_options.flattened(tune))


def tune(
    asked: Asked,
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL.onnx", help="An ONNX model, or an IRModule as .json.")
    ] = None,
    operator: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="A single operator instead of a model: 'matmul x=128,768 w=768,768'."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan (engines, coverage, trials, minutes); submit nothing.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the job to end.")] = True,
    to: options.Output = None,
    as_json: options.Json = False,
) -> int:
    """Tune a model and show the speedup. Without a budget, the server's default applies (10 minutes)."""
    request = asked.request()
    _check_output(to, waits=wait and not dry_run)
    with connecting.client() as client:
        uploaded = _uploaded(client, model, operator, like=asked.like)
        if "data" in request:
            request["data"] = data_commands.named(client, request["data"])
        if uploaded is not None:
            connecting.warn(uploaded)
        if dry_run:
            return _plan(_planned(client, uploaded, request), as_json=as_json)
        job = client.tune(uploaded, **request)
        with connecting.continuing(job):
            _tell_wait(job)
            _tell_secret(job, asked)
            if wait:
                output.note(f"job {job.id}: {job.data['model_name']} for {job.data['target']}")
        if wait:
            connecting.until_finished(job)
            _show(job, to, as_json=as_json)
        else:
            _leave(job, as_json=as_json)
    return 0


def _check_output(to: str | None, *, waits: bool) -> None:
    """Check before the job, which may take hours, that the output can be written. Raises InvalidInput."""
    from tunesmith import downloads

    options.check_output(to)
    if to is not None and not waits:
        raise typer.BadParameter(
            "-o needs the finished bundle: omit --no-wait and --dry-run, or use `tunesmith pull` later"
        )
    if to is not None:
        downloads.check(to)


def _tell_wait(job: Job) -> None:
    """Print why the job cannot start yet: what it waits for, or warnings with their codes and hints."""
    warnings = job.data.get("warnings") or ()
    if job.data["waits_for"] and not warnings:
        output.note(f"job {job.id} waits for {job.data['waits_for']}")
    if (job.data.get("queue_position") or 1) > 1:
        output.note(f"job {job.id} is in the queue: {reports.queue_place(job.data)}")
    for warning in warnings:
        output.note(f"warning[{warning['code']}]: job {job.id} waits for {warning['message']}\nhint: {warning['hint']}")


def _tell_secret(job: Job, asked: Asked) -> None:
    webhook = job.data.get("webhook") or {}
    if asked.webhook and not asked.secret and webhook.get("secret"):
        output.note(f"messages to {webhook['url']} are signed with {webhook['secret']}; it is not shown again")


def _planned(client: Client, model: Model | None, request: Any) -> dict[str, Any]:
    """Request a plan, and retry while the server is busy with other plans."""
    reported = False
    while True:
        try:
            return client.plan(model, **request)
        except errors.Unavailable as error:
            if error.code != "planner_busy":
                raise
        if not reported:
            output.note("the server is busy with another plan; waiting (Ctrl-C to stop)")
            reported = True
        time.sleep(_TURN_SECONDS)


def _plan(plan: dict[str, Any], *, as_json: bool) -> int:
    """Show a plan. Return exit status 0 if an engine can tune the model, else 1."""
    if as_json:
        output.document(plan)
    else:
        reports.plan(plan)
    return 0 if plan["possible"] else 1


def _uploaded(client: Client, model: Path | None, operator: str | None, *, like: str | None) -> Model | None:
    """Upload the model or create the operator; None with ``--like`` alone, which implies the model."""
    if model is not None and operator is None:
        return client.upload(model, progress=connecting.upload_progress(model))
    if operator is not None and model is None:
        return client.make_operator(operator_spec.parse(operator))
    if like is not None and model is None:
        return None
    raise typer.BadParameter("give one of MODEL.onnx (or .json), --operator SPEC, or --like JOB without a model")


def _leave(job: Job, *, as_json: bool) -> None:
    if as_json:
        output.document(job.data)
        return
    output.line(job.id)
    output.note(f"to follow it: tunesmith status {job.id} --watch")


def _show(job: Job, to: str | None, *, as_json: bool) -> None:
    job.refresh()
    if job.state != "succeeded" and as_json:
        output.document({"job": job.data, "report": None, "artifact": None, "path": None})
    job.check()
    report, artifact = job.report(), job.artifact
    path = _download(job, artifact, to) if to else None
    if as_json:
        place = str(path) if path else None
        output.document({"job": job.data, "report": report, "artifact": artifact.data, "path": place})
        return
    output.note("")
    reports.comparison(report, precision=job.data["precision"])
    output.line(f"artifact {artifact.id}" + (f"  {path}" if path else f"  (download: tunesmith pull {job.id} -o FILE)"))


def _download(job: Job, artifact: Artifact, to: str) -> Path:
    try:
        return artifact.download(to)
    except (errors.InvalidInput, errors.NetworkError) as error:
        # The original hint is to try again, but the job need not be repeated.
        error.hint = f"The bundle is stored; download it with: tunesmith pull {job.id} -o FILE"
        raise
