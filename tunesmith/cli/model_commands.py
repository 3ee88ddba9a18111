"""``upload`` and ``models``."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer

from tunesmith.cli import connecting, options, output


def register(app: typer.Typer) -> None:
    app.command()(upload)
    app.command()(models)


def upload(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An .onnx file.")],
    name: Annotated[str | None, typer.Option(help="For people; the file's name by default.")] = None,
    as_json: options.Json = False,
) -> None:
    """Upload an ONNX model; the same bytes are kept once."""
    with connecting.client() as client:
        model = client.upload(file, name=name, progress=connecting.upload_progress(file))
    if as_json:
        output.document({**model.data, "created": model.created})
        return
    known = "" if model.created else f"  (already known, as {model.name!r})"
    output.line(f"{model.id}{known}")
    for spec in model.data["inputs"]:
        output.note(f"input  {spec['name']}  {spec['dtype']}  {output.shape(spec['shape'])}")


def models(
    limit: Annotated[int, typer.Option(min=1, help="Most models to list.")] = 50, as_json: options.Json = False
) -> None:
    """List the uploaded models, newest first."""
    with connecting.client() as client:
        found = [model.data for model in itertools.islice(client.models(), limit)]
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
        empty="no models yet; upload one: tunesmith upload MODEL.onnx",
    )
