"""``jobs``, ``status``, ``logs``, ``cancel``, ``retry`` and ``workers``."""

from __future__ import annotations

import itertools
import time
from typing import Annotated, Any

import typer

from tunesmith.cli import connecting, options, output, reports, watching

_LOG_POLL_SECONDS = 1.0


def register(app: typer.Typer) -> None:
    for command in (jobs, status, logs, cancel, retry, workers):
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
