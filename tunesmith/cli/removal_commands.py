"""``rm model`` and ``rm artifact``."""

from __future__ import annotations

from typing import Annotated

import typer

from tunesmith import errors
from tunesmith.cli import connecting, options, output

app = typer.Typer(help="Delete models and artifacts.", no_args_is_help=True)

_MODEL_EPILOG = """\b
Examples:
  tunesmith rm model m-3f2a9c81d04b
  tunesmith rm model m-3f2a9c81d04b --json
\b
Jobs and records of it are kept. Refused while jobs of it have not ended.
Where others uploaded the same bytes, it is only no longer yours.
"""
_ARTIFACT_EPILOG = """\b
Examples:
  tunesmith rm artifact a-77c1d0e92b5f
\b
The job that made it keeps its report, and its records are kept: tuning
again costs few trials.
"""


@app.command(epilog=_MODEL_EPILOG)
def model(
    model_id: Annotated[str, typer.Argument(metavar="MODEL", help="Id or digest.")],
    as_json: options.Json = False,
) -> None:
    """Delete a model and its artifacts."""
    with connecting.client() as client:
        try:
            gone = client.delete_model(model_id)
        except errors.Conflict as error:
            error.hint = _in_use(error)
            raise
    if as_json:
        output.document({"model": model_id, "gone": gone})
    else:
        output.line(f"{model_id} deleted" if gone else f"{model_id} is no longer yours; others have it")


@app.command(epilog=_ARTIFACT_EPILOG)
def artifact(
    artifact_id: Annotated[str, typer.Argument(metavar="ARTIFACT", help="Id or digest.")],
    as_json: options.Json = False,
) -> None:
    """Delete a bundle that a job of yours published."""
    with connecting.client() as client:
        client.delete_artifact(artifact_id)
    if as_json:
        output.document({"artifact": artifact_id, "gone": True})
    else:
        output.line(f"{artifact_id} deleted")


def _in_use(error: errors.Conflict) -> str | None:
    """With the jobs' names, which people do not see in the error's details."""
    jobs = error.details.get("jobs")
    return f"Wait for {', '.join(jobs)}, or cancel with: tunesmith cancel JOB" if jobs else error.hint
