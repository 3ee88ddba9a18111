"""Options that several commands share, and the text forms they take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

STATES = ("queued", "running", "canceling", "succeeded", "failed", "canceled")
_SECONDS = 1.0
_MOST = 50


def job_ids(incomplete: str) -> list[tuple[str, str]]:
    """Ids of the latest jobs with what they are about; none when no server answers quickly."""
    from tunesmith.client import Client

    try:
        with Client(retries=0, seconds=_SECONDS) as client:
            latest = [job.data for job in itertools.islice(client.jobs(), _MOST)]
    except Exception:  # noqa: BLE001 - whatever is wrong, a half-typed line is no place to tell
        return []
    found = [job for job in latest if job["id"].startswith(incomplete)]
    return [(job["id"], f"{job['state']}, {job['model_name']} for {job['target']}") for job in found]


def states(incomplete: str) -> list[str]:
    return among(STATES)(incomplete)


def among(words: Sequence[str]) -> Callable[[str], list[str]]:
    def offered(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return offered


Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
JobId = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Id of a job, as `jobs` lists them.", autocompletion=job_ids),
]
Output = Annotated[
    str | None,
    # As text: a path would lose the slash that tells a folder which is not there yet.
    typer.Option("-o", "--output", metavar="FILE|DIR/", help="File to write the bundle to, or folder."),
]
_SHAPE = "--input-shape is NAME:SIZE,SIZE,… such as x:1,3,224,224"


def input_shapes(texts: Sequence[str]) -> dict[str, list[int]]:
    """``NAME:1,3,224,224`` each; a name may hold colons."""
    shapes: dict[str, list[int]] = {}
    for text in texts:
        name, colon, sizes = text.rpartition(":")
        try:
            shape = [int(size) for size in sizes.split(",")] if sizes else []
        except ValueError:
            raise typer.BadParameter(f"{_SHAPE}, not {text!r}") from None
        if not colon or not name:
            raise typer.BadParameter(f"{_SHAPE}, not {text!r}")
        if name in shapes:
            raise typer.BadParameter(f"--input-shape names {name!r} twice")
        shapes[name] = shape
    return shapes


def share(text: str | None, option: str) -> float | None:
    """``1%`` or ``0.01``, as a number; the server knows what it may be."""
    if text is None:
        return None
    try:
        found = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise typer.BadParameter(f"{option} is a share such as 1% or 0.01, not {text!r}")
    return found


def check_output(to: str | None) -> None:
    if to in ("", "-"):
        raise typer.BadParameter(f"-o names a file or a folder, not {to!r}: a bundle is not written to standard output")


def labels(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise typer.BadParameter(f"--label is NAME=VALUE, not {text!r}")
        found[name] = value
    return found
