"""``upload``, ``operator``, ``models`` and ``rm``."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunesmith import errors, operator_spec
from tunesmith.cli import connecting, options, output

if TYPE_CHECKING:
    from tunesmith.models import Model


rm = typer.Typer(help="Delete models and artifacts.", no_args_is_help=True)
_UPLOAD_EPILOG = """\b
Examples:
  tunesmith upload net.onnx
  tunesmith upload net.onnx --name resnet-50-v3
"""
_OPERATOR_EPILOG = """\b
Examples:
  tunesmith operator 'conv2d x=1,64,56,56 w=64,64,3,3 padding=1'
  tunesmith operator 'matmul x=128,768 w=768,3072'
\b
Operators: matmul, batch_matmul, dense, conv1d, conv2d, conv3d,
depthwise_conv2d, conv2d_transpose (docs/reference/tuning.md).
"""
_RM_MODEL_EPILOG = """\b
Examples:
  tunesmith rm model m-3f2a9c81d04b
  tunesmith rm model m-3f2a9c81d04b --json
\b
Its jobs and records are kept. A model with unfinished jobs cannot be
deleted. If others uploaded the same bytes, only your ownership ends.
"""
_RM_ARTIFACT_EPILOG = """\b
Examples:
  tunesmith rm artifact a-77c1d0e92b5f
\b
The job that built it keeps its report and records, so tuning again needs
few trials.
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_UPLOAD_EPILOG)(upload)
    app.command(epilog=_OPERATOR_EPILOG)(operator)
    app.command()(models)


def upload(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="An .onnx file, a .tar of one and the files with its weights, or an IRModule as .json."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Display name.  [default: the file's name]")] = None,
    model_format: Annotated[
        str | None, typer.Option("--format", help="onnx or irmodule.  [default: irmodule for .json, else onnx]")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Upload a model. Identical files are stored once."""
    with connecting.client() as client:
        progress = connecting.upload_progress(file)
        _show(client.upload(file, name=name, model_format=model_format, progress=progress), as_json=as_json)


def operator(
    spec: Annotated[
        str,
        typer.Argument(metavar="SPEC", help="Operator, such as 'conv2d x=1,64,56,56 w=64,64,3,3 strides=1 padding=1'."),
    ],
    name: Annotated[str | None, typer.Option(help="Display name.  [default: the operator and its shapes]")] = None,
    as_json: options.Json = False,
) -> None:
    """Create a model of a single operator, to tune like any other."""
    draft = operator_spec.parse(spec)
    with connecting.client() as client:
        _show(client.make_operator({**draft, "name": name}), as_json=as_json)


def _show(model: Model, *, as_json: bool) -> None:
    if as_json:
        output.document({**model.data, "created": model.created})
        return
    known = "" if model.created else f"  (already uploaded as {model.name!r})"
    output.line(f"{model.id}{known}")
    for spec in model.data["inputs"]:
        output.note(f"input  {spec['name']}  {spec['dtype']}  {output.shape(spec['shape'])}")
    connecting.warn(model)


def models(
    name: Annotated[str | None, typer.Option(help="Only models whose name contains this text.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of models to list.")] = 50,
    as_json: options.Json = False,
) -> None:
    """List the uploaded models, newest first."""
    with connecting.client() as client:
        found = [model.data for model in itertools.islice(client.models(name=name), limit)]
    if as_json:
        output.document(found)
        return
    rows = [
        [
            model["id"],
            model["name"],
            output.size(model["bytes"]),
            " ".join(f"{spec['name']}:{output.shape(spec['shape'])}" for spec in model["inputs"]),
            output.when(model["created_at"]),
        ]
        for model in found
    ]
    output.listing(
        ["MODEL", "NAME", "SIZE", "INPUTS", "UPLOADED"],
        rows,
        optional=["SIZE", "INPUTS", "UPLOADED"],
        empty="no matching models" if name else "no models yet; upload one: tunesmith upload MODEL.onnx",
    )


@rm.command("model", epilog=_RM_MODEL_EPILOG)
def remove_model(
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
    text = f"{model_id} deleted" if gone else f"{model_id} is no longer yours; it is kept for its other owners"
    output.answer({"model": model_id, "gone": gone}, text, as_json=as_json)


@rm.command("artifact", epilog=_RM_ARTIFACT_EPILOG)
def remove_artifact(
    artifact_id: Annotated[str, typer.Argument(metavar="ARTIFACT", help="Id or digest.")],
    as_json: options.Json = False,
) -> None:
    """Delete an artifact of one of your jobs."""
    with connecting.client() as client:
        client.delete_artifact(artifact_id)
    output.answer({"artifact": artifact_id, "gone": True}, f"{artifact_id} deleted", as_json=as_json)


def _in_use(error: errors.Conflict) -> str | None:
    """Return a hint with the ids of the jobs, which the command line does not print from the error's details."""
    jobs = error.details.get("jobs")
    return f"Wait for {', '.join(jobs)} to finish, or cancel with: tunesmith cancel JOB" if jobs else error.hint
