"""``data``: add, list and delete data sets."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunesmith import errors
from tunesmith.cli import connecting, options, output

if TYPE_CHECKING:
    from tunesmith.client import Client
    from tunesmith.data_sets import DataSet

app = typer.Typer(help="Your own rows, which judge and calibrate builds.", no_args_is_help=True)
_ADD_EPILOG = """\b
Examples:
  tunesmith data add val.npz
  tunesmith data add val.npz --name imagenet-200
\b
Then name it: tunesmith tune net.onnx --data imagenet-200. The file is what
numpy.savez(FILE, input=rows, labels=classes) writes: an array per input of
the model, whose first axis is the rows. Labels are optional. Rows never
enter a bundle or a log.
"""


@app.command(epilog=_ADD_EPILOG)
def add(
    file: Annotated[Path, typer.Argument(metavar="FILE.npz", help="Arrays with the names of the model's inputs.")],
    name: Annotated[str | None, typer.Option(help="Name among your data sets.  [default: the file's name]")] = None,
    as_json: options.Json = False,
) -> None:
    """Add a data set. The same file is stored once."""
    with connecting.client() as client:
        found = upload(client, file, name)
    if as_json:
        output.document({**found.data, "created": found.created})
        return
    output.line(found.id + ("" if found.created else f"  (already there as {found.name!r})"))
    for spec in found.data["arrays"]:
        output.note(f"array  {spec['name']}  {spec['dtype']}  {output.shape(spec['shape'])}")


@app.command("list")
def listing(
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of data sets to list.")] = 50,
    as_json: options.Json = False,
) -> None:
    """List your data sets, newest first."""
    with connecting.client() as client:
        found = [each.data for each in itertools.islice(client.data_sets(), limit)]
    if as_json:
        output.document(found)
        return
    rows = [
        [
            each["id"],
            each["name"],
            str(each["rows"]),
            output.size(each["bytes"]),
            " ".join(f"{spec['name']}:{output.shape(spec['shape'][1:])}" for spec in each["arrays"]),
            output.when(each["created_at"]),
        ]
        for each in found
    ]
    output.listing(
        ["DATA SET", "NAME", "ROWS", "SIZE", "ARRAYS", "ADDED"],
        rows,
        optional=["SIZE", "ARRAYS", "ADDED"],
        empty="no data sets yet; add one: tunesmith data add FILE.npz",
    )


@app.command("rm")
def remove(
    data_set: Annotated[str, typer.Argument(metavar="DATA", help="Id or name.")], as_json: options.Json = False
) -> None:
    """Delete a data set. Jobs that used it keep their reports."""
    with connecting.client() as client:
        client.delete_data_set(data_set)
    output.answer({"data_set": data_set, "gone": True}, f"{data_set} deleted", as_json=as_json)


def upload(client: Client, file: Path, name: str | None) -> DataSet:
    return client.add_data_set(file, name=name, progress=connecting.upload_progress(file))


def named(client: Client, asked: str) -> str:
    """Return the id or name in ``--data``; a file is added as a data set first.

    A file whose name an older one has gets a name with the start of its digest.
    """
    file = Path(asked)
    if file.suffix != ".npz":
        return asked
    try:
        found = upload(client, file, None)
    except errors.Conflict as error:
        if error.code != "data_set_name_taken":
            raise
        found = upload(client, file, _with_digest(file))
    return found.id


def _with_digest(file: Path) -> str:
    from tunesmith.client import plain_name
    from tunesmith.downloads import file_digest

    return f"{plain_name(file)}-{file_digest(file)[:8]}"
