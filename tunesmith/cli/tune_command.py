"""``tune``: upload, ask, watch, show what was gained, download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunesmith.cli import connecting, groups, options, output, reports, watching
from tunesmith.cli.request_options import Build, Measuring, Queueing, Search

if TYPE_CHECKING:
    from tunesmith.resources import Job


def register(app: typer.Typer) -> None:
    app.command(cls=groups.GroupedCommand)(groups.flattened(tune))


def tune(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="An ONNX model.")],
    build: Build,
    search: Search,
    measuring: Measuring,
    queueing: Queueing,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until the job ends.")] = True,
    to: Annotated[Path | None, typer.Option("-o", "--output", help="Download the bundle to this file.")] = None,
    as_json: options.Json = False,
) -> None:
    """Tune a model and show what was gained. Without a budget the server's default applies (10 minutes)."""
    request = {**build.request(), **search.request(), **measuring.request(), **queueing.request()}
    with connecting.client() as client:
        uploaded = client.upload(model, progress=connecting.upload_progress(model))
        job = client.tune(uploaded, **request)
        if wait:
            output.note(f"job {job.id}: {uploaded.name} for {build.target}")
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
    reports.comparison(report, precision=job.data["precision"])
    output.line(f"artifact {artifact.id}" + (f"  {path}" if path else f"  (get it: tunesmith pull {job.id} -o FILE)"))
