"""``jobs``, ``groups``, ``status``, ``explain``, ``logs``, ``cancel``, ``retry``, ``deliveries`` and ``workers``."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunesmith import job_draft
from tunesmith.cli import connecting, options, output, profile_table, reports

if TYPE_CHECKING:
    from tunesmith.jobs import Job
    from tunesmith.requests import JobFilters

_LOG_POLL_SECONDS = 1.0
_JOBS_EPILOG = """\b
Examples:
  tunesmith jobs --state running
  tunesmith jobs --group nightly --label team=vision
  tunesmith jobs --json | jq -r '.[].id'
"""
_STATUS_EPILOG = """\b
Examples:
  tunesmith status JOB
  tunesmith status JOB --watch
"""
_EXPLAIN_EPILOG = """\b
Examples:
  tunesmith explain JOB
  tunesmith explain JOB --json | jq '.operators[0]'
"""
_LOGS_EPILOG = """\b
Examples:
  tunesmith logs JOB --follow
  tunesmith logs JOB | tail -n 40
"""
_CANCEL_EPILOG = """\b
Examples:
  tunesmith cancel JOB
  tunesmith cancel --group nightly
"""
_RETRY_EPILOG = """\b
Examples:
  tunesmith retry JOB
\b
To change options: tunesmith tune --like JOB.
"""
_DELIVERIES_EPILOG = """\b
Examples:
  tunesmith deliveries JOB
  tunesmith deliveries JOB --resend
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_JOBS_EPILOG)(jobs)
    app.command(epilog=_STATUS_EPILOG)(status)
    app.command(epilog=_EXPLAIN_EPILOG)(explain)
    app.command()(groups)
    app.command(epilog=_LOGS_EPILOG)(logs)
    app.command(epilog=_CANCEL_EPILOG)(cancel)
    app.command(epilog=_RETRY_EPILOG)(retry)
    app.command(epilog=_DELIVERIES_EPILOG)(deliveries)
    app.command()(workers)


def jobs(
    state: Annotated[
        str | None,
        typer.Option(
            help="Only jobs in this state: queued, running, canceling, succeeded, failed or canceled.",
            autocompletion=options.states,
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Only jobs of this model: id or digest.")] = None,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="Only jobs of this group.")] = None,
    label: Annotated[str | None, typer.Option(metavar="NAME=VALUE", help="Only jobs with this label.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Only jobs for this target, as requested or as resolved by the worker.")
    ] = None,
    tuner: Annotated[
        str | None,
        typer.Option(help="Only jobs that requested this tuner.", autocompletion=options.among(job_draft.TUNERS)),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Part of a model name, group or label value, or start of a job id.")
    ] = None,
    part_of: Annotated[
        str | None, typer.Option(metavar="JOB", help="The parts of this job, one for each of its sizes.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs to list.")] = 50,
    as_json: options.Json = False,
) -> None:
    """List the jobs, newest first."""
    with connecting.client() as client:
        wanted: JobFilters = {"state": state, "model": model, "group": group, "label": label, "target": target}
        wanted |= {"tuner": tuner, "text": text, "part_of": part_of}
        pages = client.jobs(**wanted)
        found = [job.data for job in itertools.islice(pages, limit)]
    if as_json:
        output.document(found)
        return
    asked = any((state, model, group, label, target, tuner, text, part_of))
    output.listing(
        ["JOB", "STATE", "STAGE", "TRIALS", "TIME", "MODEL", "TARGET"],
        [_row(job) for job in found],
        optional=["STAGE", "TRIALS", "TIME", "MODEL", "TARGET"],
        empty="no matching jobs" if asked else "no jobs yet; tune a model: tunesmith tune MODEL.onnx",
    )


def _row(job: dict[str, Any]) -> list[str]:
    placement = job["placement"]
    return [
        job["id"],
        job["state"] + (f" #{job['queue_position']}" if job.get("queue_position") else ""),
        job["stage"] or "-",
        f"{job['trials_done']}/{job['trials_planned']}",
        output.duration(job["run_seconds"]),
        job["model_name"],
        placement["target"] if placement else job["target"],
    ]


def groups(
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of groups to list.")] = 50,
    as_json: options.Json = False,
) -> None:
    """List the groups of jobs, the most recent first."""
    with connecting.client() as client:
        found = list(itertools.islice(client.groups(), limit))
    if as_json:
        output.document(found)
        return
    output.listing(
        ["GROUP", "JOBS", "STATES", "LATEST"],
        [[group["name"], str(group["jobs"]), _states(group), output.when(group["newest_at"])] for group in found],
        optional=["STATES", "LATEST"],
        empty="no groups; add a job to one: tunesmith tune MODEL.onnx --group NAME",
    )


def _states(group: dict[str, Any]) -> str:
    return ", ".join(f"{count} {state}" for state, count in group["counts"].items())


def status(
    job: options.JobId,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show progress until the job ends.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show a job. With --watch, the exit status is that of `tune`."""
    with connecting.client() as client:
        found = client.job(job)
        if watch:
            connecting.until_finished(found)
        if as_json:
            output.document(found.refresh().data)
        else:
            reports.job(found)
        if watch:
            found.check()


def explain(
    job: options.JobId,
    rows: Annotated[int, typer.Option(min=1, help="Operators to list; the others are added up.")] = 20,
    as_json: options.Json = False,
) -> None:
    """Show where the published build loses time, compared with ONNX Runtime."""
    with connecting.client() as client:
        found = client.job(job).profile()
    if as_json:
        output.document(found)
    else:
        profile_table.show(found, rows)


def logs(
    job: options.JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new output until the job ends.")] = False,
    as_json: options.Json = False,
) -> None:
    """Print the end of the engine log."""
    if follow and as_json:
        raise typer.BadParameter("--json and --follow cannot be combined")
    with connecting.client() as client:
        found = client.job(job)
        if as_json:
            text, offset = found.log()
            output.document({"job": found.id, "text": text, "next_offset": offset})
            return
        try:
            _log(found, follow=follow)
        except KeyboardInterrupt:
            output.note(f"\njob {found.id} continues; to follow its log: tunesmith logs {found.id} --follow")
            raise


def _log(job: Job, *, follow: bool) -> None:
    text, offset = job.log()
    _print(text)
    while follow:
        ended = job.refresh().is_finished
        text, offset = job.log(offset)
        _print(text)
        if ended and not text:
            return
        time.sleep(0 if text else _LOG_POLL_SECONDS)


def _print(text: str) -> None:
    typer.echo(text, nl=False)


def cancel(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="Id of a job.", autocompletion=options.job_ids)
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="Cancel every job of this group.")] = None,
    as_json: options.Json = False,
) -> None:
    """Cancel a job or a group of jobs. Finished trials are kept."""
    if job is None or group is not None:
        if job is not None or group is None:
            raise typer.BadParameter("give either JOB or --group, not both")
        _cancel_group(group, as_json=as_json)
        return
    with connecting.client() as client:
        found = client.job(job).cancel()
    output.answer(found.data, f"{found.id} is {found.state}", as_json=as_json)


def _cancel_group(name: str, *, as_json: bool) -> None:
    with connecting.client() as client:
        group = client.cancel_group(name)
    output.answer(group, f"group {name}: {_states(group)}", as_json=as_json)


def retry(job: options.JobId, as_json: options.Json = False) -> None:
    """Submit a failed or canceled job again, as a new job."""
    with connecting.client() as client:
        found = client.job(job).retry()
    output.answer(found.data, found.id, as_json=as_json)
    if not as_json:
        output.note(f"to follow it: tunesmith status {found.id} --watch")


def deliveries(
    job: options.JobId,
    resend: Annotated[bool, typer.Option("--resend", help="Send the message again.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show the deliveries of a job's webhook."""
    with connecting.client() as client:
        found = client.job(job)
        known = found.resend() if resend else found.deliveries()
    if as_json:
        output.document(known)
        return
    if known["url"] is None:
        output.note(f"job {found.id} has no webhook; set one when submitting: tunesmith tune --webhook URL")
        return
    output.note(f"to {known['url']}")
    rows = [
        [
            one["id"],
            one["state"],
            str(one["attempts"]),
            str(one["last_status"] or "-"),
            output.when(one["next_attempt_at"]) if one["next_attempt_at"] else "-",
            one["last_error"] or "-",
        ]
        for one in known["deliveries"]
    ]
    output.listing(
        ["MESSAGE", "STATE", "ATTEMPTS", "STATUS", "NEXT", "ERROR"],
        rows,
        optional=["STATUS", "NEXT", "ERROR"],
        empty="no message was sent yet: the job has not ended",
    )


def workers(as_json: options.Json = False) -> None:
    """List the workers that reported recently."""
    with connecting.client() as client:
        fleet = client.fleet()
    found = fleet["workers"]
    for warning in fleet.get("warnings", ()):
        output.note(f"warning[{warning['code']}]: {warning['message']}\nhint: {warning['hint']}")
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
            worker.get("release") or "-",
            output.when(worker["last_seen_at"]),
        ]
        for worker in found
    ]
    output.listing(
        ["WORKER", "STATE", "JOB", "TARGET", "DEVICE", "RELEASE", "SEEN"],
        rows,
        optional=["TARGET", "DEVICE", "RELEASE", "SEEN"],
        empty="no workers; start one: tunesmith worker",
    )
