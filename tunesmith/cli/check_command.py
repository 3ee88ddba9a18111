"""``check``: a bundle on rows of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tunesmith.cli import options, output, reports

_EPILOG = """\b
Examples:
  tunesmith check net.tar --data val.npz --model net.onnx
  tunesmith check net.tar --data labelled.npz --json
\b
The file is what numpy.savez(FILE, input=rows, labels=classes) writes; labels
are optional. Exit status 1 if the bundle is not accurate enough.
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(check)


def check(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle.")],
    data: Annotated[Path, typer.Option(metavar="FILE.npz", help="Arrays with the names of the model's inputs.")],
    model: Annotated[
        Path | None,
        typer.Option(help="ONNX file that it was compiled from.  [default: the one in the bundle, if it has one]"),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Check a bundle on your own rows, against ONNX Runtime and labels; needs a checkout.

    It runs in the sandbox, and must be as accurate as a job's builds: in f32 up to rounding, in narrower precisions by
    agreement on the rows and, with labels, by at most one point of top-1 less than the reference.
    """
    from tunesmith.cli import comparing

    found = comparing.on_rows(bundle, data, model)
    if as_json:
        output.document({"bundle": str(bundle), "data": str(data), **found})
    else:
        for sentence in reports.checked_on_rows(found):
            output.paragraph(sentence)
    return 1 if found["passed"] is False else 0
