"""``tune``: upload, ask, watch, show what was gained, download."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunesmith import errors, operator_spec
from tunesmith.cli import connecting, options, output, reports, request_options
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
  tunesmith tune net.onnx --tuner ansor --trials 2000 --no-wait
  tunesmith tune --like JOB --seconds 3600
  tunesmith tune --operator 'matmul x=128,768 w=768,768'
\b
Options that go together: docs/reference/tuning.md.
"""
_TURN_SECONDS = 2.0
"""Between two askings for a plan."""


def register(app: typer.Typer) -> None:
    app.command(cls=request_options.GroupedCommand, epilog=_EPILOG)(request_options.flattened(tune))


def tune(
    asked: Asked,
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL.onnx", help="An ONNX model, or one operator as IRModule .json.")
    ] = None,
    operator: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="One operator in place of a model: 'matmul x=128,768 w=768,768'."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what the job would do: engines, coverage, trials, minutes.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until the job ends.")] = True,
    to: options.Output = None,
    as_json: options.Json = False,
) -> int:
    """Tune a model and show what was gained. Without a budget the server's default applies (10 minutes)."""
    request = asked.request()
    _check_output(to, waits=wait and not dry_run)
    with connecting.client() as client:
        uploaded = _uploaded(client, model, operator, like=asked.like)
        if dry_run:
            return _plan(_planned(client, uploaded, request), as_json=as_json)
        job = client.tune(uploaded, **request)
        _tell_wait(job)
        _tell_secret(job, asked)
        if wait:
            output.note(f"job {job.id}: {job.data['model_name']} for {job.data['target']}")
            connecting.until_finished(job)
            _show(job, to, as_json=as_json)
        else:
            _leave(job, as_json=as_json)
    return 0


def _check_output(to: str | None, *, waits: bool) -> None:
    """Before the job, which may take hours. Raises InvalidInput for what cannot be written."""
    from tunesmith import downloads

    options.check_output(to)
    if to is not None and not waits:
        raise typer.BadParameter(
            "-o waits for the bundle: leave --no-wait and --dry-run out, or `tunesmith pull` it later"
        )
    if to is not None:
        downloads.check(to)


def _tell_wait(job: Job) -> None:
    """Why the job will not begin soon; of a warning its code and what to do."""
    warnings = job.data.get("warnings") or ()
    if job.data["waits_for"] and not warnings:
        output.note(f"job {job.id} waits for {job.data['waits_for']}")
    for warning in warnings:
        output.note(f"warning[{warning['code']}]: job {job.id} waits for {warning['message']}\nhint: {warning['hint']}")


def _tell_secret(job: Job, asked: Asked) -> None:
    webhook = job.data.get("webhook") or {}
    if asked.webhook and not asked.secret and webhook.get("secret"):
        output.note(f"calls of {webhook['url']} are signed with {webhook['secret']}; this is not shown again")


def _planned(client: Client, model: Model | None, request: Any) -> dict[str, Any]:
    """Waits for its turn at a server that is making as many plans as it may."""
    told = False
    while True:
        try:
            return client.plan(model, **request)
        except errors.Unavailable as error:
            if error.code != "planner_busy":
                raise
        if not told:
            output.note("the server is making another plan; this one waits for its turn (Ctrl-C gives up)")
            told = True
        time.sleep(_TURN_SECONDS)


def _plan(plan: dict[str, Any], *, as_json: bool) -> int:
    """Status 0 when some engine takes the model, 1 when none does."""
    if as_json:
        output.document(plan)
    else:
        reports.plan(plan)
    return 0 if plan["possible"] else 1


def _uploaded(client: Client, model: Path | None, operator: str | None, *, like: str | None) -> Model | None:
    """None for the model of the job that the new one is like."""
    if model is not None and operator is None:
        return client.upload(model, progress=connecting.upload_progress(model))
    if operator is not None and model is None:
        return client.make_operator(operator_spec.parse(operator))
    if like is not None and model is None:
        return None
    raise typer.BadParameter(
        "name a MODEL.onnx (or .json), an operator with --operator, or a job with --like, but not two models"
    )


def _leave(job: Job, *, as_json: bool) -> None:
    if as_json:
        output.document(job.data)
        return
    output.line(job.id)
    output.note(f"look at it: tunesmith status {job.id} --watch")


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
    output.line(f"artifact {artifact.id}" + (f"  {path}" if path else f"  (get it: tunesmith pull {job.id} -o FILE)"))


def _download(job: Job, artifact: Artifact, to: str) -> Path:
    try:
        return artifact.download(to)
    except (errors.InvalidInput, errors.NetworkError) as error:
        # Not "try again": the job is done.
        error.hint = f"The bundle is kept; get it with: tunesmith pull {job.id} -o FILE"
        raise
