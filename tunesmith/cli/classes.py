"""A classifier's answers with the names of its classes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith import errors
from tunesmith.cli.arrays import Array


@dataclass(frozen=True, kw_only=True)
class Answer:
    index: int
    value: float
    label: str | None


def labels(path: Path) -> list[str]:
    """One name a line; or a JSON list of names, or an object from class numbers to names. Raises InvalidInput."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise errors.unreadable(path) from error
    except UnicodeDecodeError as error:
        raise _wrong(path, "it is no UTF-8 text") from error
    if text.lstrip()[:1] in ("[", "{"):
        return _of_json(path, text)
    lines = text.rstrip().splitlines()
    if not lines:
        raise _wrong(path, "it is empty")
    return [line.strip() for line in lines]


def top(array: Array, most: int, names: Sequence[str] | None) -> list[list[Answer]]:
    """The largest values of each row, which is the last axis. Raises InvalidInput when there are not as many names."""
    classes = array.shape[-1] if array.shape else 1
    if names is not None and len(names) != classes:
        raise errors.InvalidInput(
            f"there are {len(names)} labels, and output {array.name!r} has {classes} classes",
            code="invalid_labels",
            hint="Name every class, in order; --dump-outputs NAME chooses another output.",
        )
    rows = [array.values[start : start + classes] for start in range(0, len(array.values), max(1, classes))]
    return [_largest(row, most, names) for row in rows]


def _largest(row: Sequence[float], most: int, names: Sequence[str] | None) -> list[Answer]:
    # What is not a number is the last; of equals the first class comes first, as numpy's argmax has it.
    order = sorted(range(len(row)), key=lambda index: (math.isnan(row[index]), -row[index]))
    return [Answer(index=index, value=row[index], label=names[index] if names else None) for index in order[:most]]


def _of_json(path: Path, text: str) -> list[str]:
    try:
        document: Any = json.loads(text)
        if isinstance(document, dict):
            numbered = {int(number): name for number, name in document.items()}
            document = [numbered[number] for number in range(len(numbered))]
    except (ValueError, KeyError) as error:
        raise _wrong(path, "it is no JSON list of names, nor an object of numbers 0, 1, … to names") from error
    # ImageNet's class index has [wordnet id, name].
    return [str(name[-1]) if isinstance(name, list) and name else str(name) for name in document]


def _wrong(path: Path, reason: str) -> errors.InvalidInput:
    hint = "Write one name a line, in the order of the classes."
    return errors.InvalidInput(f"{path} has no labels: {reason}", code="invalid_labels", hint=hint)
