"""``jobs``, ``status``, ``logs``, ``cancel``, ``retry``, ``pull`` and ``workers``."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tunesmith import errors
from tunesmith.cli import connecting, options, output, reports, watching

_LOG_POLL_SECONDS = 1.0


def register(app: typer.Typer) -> None:
    for command in (jobs, status, logs, cancel, retry, pull, workers):
        app.command()(command)


def jobs(
    state: Annotated[
        str | None, typer.Option(help="queued, running, canceling, succeeded, failed or canceled.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Id or digest of a model.")] = None,
    label: Annotated[str | None, typer.Option(metavar="NAME=VALUE", help="Only jobs with this label.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most jobs to list.")] = 50,
    as_json: options.Json = False,
) -> None:
    """List the jobs, newest first."""
    with connecting.client() as client:
        found = [job.data for job in itertools.islice(client.jobs(state=state, model=model, label=label), limit)]
    if as_json:
        output.document(found)
        return
    output.listing(
        ["JOB", "STATE", "STAGE", "TRIALS", "TIME", "MODEL", "TARGET"],
        [_row(job) for job in found],
        optional=["STAGE", "TRIALS", "TIME", "MODEL", "TARGET"],
        empty="no jobs; tune a model: tunesmith tune MODEL.onnx",
    )


def _row(job: dict[str, Any]) -> list[str]:
    placement = job["placement"]
    return [
        job["id"],
        job["state"],
        job["stage"] or "-",
        f"{job['trials_done']}/{job['trials_planned']}",
        output.duration(job["run_seconds"]),
        job["model_name"],
        placement["target"] if placement else job["target"],
    ]


def status(
    job: options.JobId,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay and show progress until it ends.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show one job; with --watch, exit as `tune` does."""
    with connecting.client() as client:
        found = client.job(job)
        if watch:
            watching.until_finished(found)
        if as_json:
            output.document(found.refresh().data)
        else:
            reports.job(found)
        if watch:
            found.check()


def logs(
    job: options.JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
) -> None:
    """Print the end of the engine log."""
    with connecting.client() as client:
        found = client.job(job)
        text, offset = found.log()
        _print(text)
        while follow:
            ended = found.refresh().is_finished
            text, offset = found.log(offset)
            _print(text)
            if ended and not text:
                return
            time.sleep(0 if text else _LOG_POLL_SECONDS)


def _print(text: str) -> None:
    typer.echo(text, nl=False)


def cancel(job: options.JobId, as_json: options.Json = False) -> None:
    """Stop a job; its finished trials are kept."""
    with connecting.client() as client:
        found = client.job(job).cancel()
    if as_json:
        output.document(found.data)
    else:
        output.line(f"{found.id} is {found.state}")


def retry(job: options.JobId, as_json: options.Json = False) -> None:
    """Ask again, as a new job, for what failed or was canceled."""
    with connecting.client() as client:
        found = client.job(job).retry()
    if as_json:
        output.document(found.data)
    else:
        output.line(found.id)
        output.note(f"look at it: tunesmith status {found.id} --watch")


def pull(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Id of a job that has succeeded.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="FILE|DIGEST", help="The best bundle of this model, whichever job made it.")
    ] = None,
    target: Annotated[str, typer.Option(help="With --model: what it is to run on.")] = "native",
    precision: Annotated[str, typer.Option(help="With --model: f32, bf16, fp16, int8, or auto for any.")] = "f32",
    input_shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:1,3,224,224", help="With --model: only bundles for this shape; repeatable."),
    ] = None,
    to: Annotated[Path | None, typer.Option("-o", "--output", help="File or folder to write to.")] = None,
    as_json: options.Json = False,
) -> None:
    """Download a tuned bundle: JOB's, or the best of a model and target."""
    if (job is None) == (model is None):
        raise typer.BadParameter("name a JOB, or a model with --model, but not both")
    shapes = options.input_shapes(input_shape or [])
    with connecting.client() as client:
        if model:
            artifact = client.best(_digest(model), target=target, precision=precision, input_shapes=shapes)
        else:
            artifact = client.job(str(job)).artifact
        path = artifact.download(to or Path(f"{artifact.id}.tar"))
    if as_json:
        output.document({**artifact.data, "why": artifact.why, "path": str(path)})
        return
    if artifact.why:
        output.note(artifact.why)
    output.note(artifact.data["report"]["summary"])
    output.line(str(path))


def _digest(model: str) -> str:
    """Of a file by that name, else what was given: an id or a digest."""
    from tunesmith.downloads import file_digest

    path = Path(model)
    if path.is_file():
        return file_digest(path)
    if path.suffix or "/" in model:
        raise errors.unreadable(path)
    return model


def workers(as_json: options.Json = False) -> None:
    """List the workers that were seen lately."""
    with connecting.client() as client:
        found = client.workers()
    if as_json:
        output.document(found)
        return
    rows = [
        [
            worker["id"],
            "alive" if worker["alive"] else "gone",
            worker["current_job"] or "-",
            worker["native_target"],
            ", ".join(gpu["name"] for gpu in worker["accelerators"]) or worker["device"],
            output.when(worker["last_seen_at"]),
        ]
        for worker in found
    ]
    output.listing(
        ["WORKER", "STATE", "JOB", "TARGET", "DEVICE", "SEEN"],
        rows,
        optional=["TARGET", "DEVICE", "SEEN"],
        empty="no workers; start one: tunesmith worker",
    )
