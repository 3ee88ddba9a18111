"""Options that several commands share, and parsers of their values."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from tunesmith import job_draft

STATES = ("queued", "running", "canceling", "succeeded", "failed", "canceled")
_SECONDS = 1.0
_MOST = 50


def job_ids(incomplete: str) -> list[tuple[str, str]]:
    """Complete ids of the latest jobs, with descriptions; nothing if no server answers within a second."""
    from tunesmith.client import Client

    try:
        with Client(retries=0, seconds=_SECONDS) as client:
            latest = [job.data for job in itertools.islice(client.jobs(), _MOST)]
    except Exception:  # noqa: BLE001 - completion must not print errors into a half-typed line
        return []
    found = [job for job in latest if job["id"].startswith(incomplete)]
    return [(job["id"], f"{job['state']}, {job['model_name']} for {job['target']}") for job in found]


def states(incomplete: str) -> list[str]:
    return among(STATES)(incomplete)


def among(words: Sequence[str]) -> Callable[[str], list[str]]:
    def offered(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return offered


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
JobId = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Id of a job; `jobs` lists them.", autocompletion=job_ids),
]
Output = Annotated[
    str | None,
    # A string, as a Path would lose the trailing slash that marks a folder to create.
    typer.Option("-o", "--output", metavar="FILE|DIR/", help="File or folder to write the bundle to."),
]
Size = TypeVar("Size")
_SHAPE = "--input-shape must be NAME:SIZE,SIZE,… such as x:1,3,224,224"
_CHOICES = f"{_SHAPE}, or x:1/4/8,3,224,224 for several sizes, where all values have frequencies (1@6/4@3) or none"


def input_shapes(texts: Sequence[str]) -> dict[str, list[int]]:
    """Parse texts of the form ``NAME:1,3,224,224``; a name may contain colons. Raises BadParameter."""
    return _shapes(texts, int, _SHAPE)


def size_choices(texts: Sequence[str]) -> dict[str, list[job_draft.Dimension]]:
    """Parse texts of the form ``NAME:1/4/8,3,224@6/448@3``; a name may contain colons. Raises BadParameter."""
    return _shapes(texts, job_draft.dimension, _CHOICES)


def _shapes(texts: Sequence[str], parse: Callable[[str], Size], wanted: str) -> dict[str, list[Size]]:
    shapes: dict[str, list[Size]] = {}
    for text in texts:
        name, colon, sizes = text.rpartition(":")
        try:
            shape = [parse(size) for size in sizes.split(",")] if sizes else []
        except ValueError:
            raise typer.BadParameter(f"{wanted}, not {text!r}") from None
        if not colon or not name:
            raise typer.BadParameter(f"{wanted}, not {text!r}")
        if name in shapes:
            raise typer.BadParameter(f"--input-shape is given twice for {name!r}")
        shapes[name] = shape
    return shapes


def frequencies(path: str | None, option: str) -> list[dict[str, Any]] | None:
    """Read a JSON file of observed shapes; the server checks the entries. Raises BadParameter."""
    if path is None:
        return None
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{option}: cannot read {path!r}: {error}") from None
    if not isinstance(found, list) or not all(
        isinstance(each, dict) and isinstance(each.get("input_shapes"), dict) for each in found
    ):
        raise typer.BadParameter(f'{option}: {path!r} must be a list of {{"input_shapes": {{…}}, "count": N}}')
    return found


def padding(texts: Sequence[str], option: str) -> dict[str, float]:
    """Parse texts of the form ``NAME=VALUE``. Raises BadParameter."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not (name and equals and math.isfinite(found[name])):
            raise typer.BadParameter(f"{option} must be NAME=VALUE with a number, such as ids=0, not {text!r}")
    return found


def share(text: str | None, option: str) -> float | None:
    """Parse ``1%`` or ``0.01``; the server checks the range. Raises BadParameter."""
    if text is None:
        return None
    try:
        found = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise typer.BadParameter(f"{option} must be a share such as 1% or 0.01, not {text!r}")
    return found


def minutes(text: str | None, option: str) -> float | None:
    """Parse a number of minutes and return seconds; the server checks the range. Raises BadParameter."""
    if text is None:
        return None
    try:
        found = float(text) * 60
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise typer.BadParameter(f"{option} must be a number of minutes, not {text!r}")
    return found


def check_output(to: str | None) -> None:
    if to in ("", "-"):
        raise typer.BadParameter(
            f"-o must be a file or a folder, not {to!r}: a bundle cannot be written to standard output"
        )


def labels(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise typer.BadParameter(f"--label must be NAME=VALUE, not {text!r}")
        found[name] = value
    return found
