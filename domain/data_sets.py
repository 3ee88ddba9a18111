"""Data sets: rows of a user's own inputs, with or without labels, and how a model takes them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from domain import errors
from domain.digests import BlobDigest
from domain.models import TensorSpec

LABELS = "labels"
"""Array of a data set that is no input, unless the model has an input of that name."""
_CALIBRATES_ONE_IN = 4
_MOST_CALIBRATION_RUNS = 64
_MOST_RUNS = 256
_MOST_BYTES = 256 * 1024**2
"""Runs that judge a build, and bytes of their inputs; more take long and decide nothing."""


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """What an uploaded file holds."""

    arrays: tuple[TensorSpec, ...]
    """The first axis of each is the rows."""
    rows: int


@dataclass(frozen=True, kw_only=True)
class DataSet:
    id: str
    digest: BlobDigest
    """sha256 of the uploaded ``.npz`` file, hex."""
    name: str
    """Unique among the owner's."""
    owner: str
    size_bytes: int
    facts: DataFacts
    created_at: datetime
    deleted_at: datetime | None = None
    """Set at deletion; its bytes are unavailable since then."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How a model takes the rows of a data set."""

    rows: int
    """Rows of one run: the model's batch size, or 1 where a row is a whole input."""
    runs: int
    """Whole runs that the data set has."""
    labels: TensorSpec | None
    """None without labels."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Numbers of runs, by use. No run that calibrates judges."""

    calibration: tuple[int, ...]
    judging: tuple[int, ...]


def fit(facts: DataFacts, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Fit:
    """Return how a model with these static ``inputs`` takes the rows. Raises DataMismatch.

    A row of an array is a row of a batch, ``[N, *row]``, or the whole input, ``row``.
    """
    arrays = {spec.name: spec for spec in facts.arrays}
    named = {spec.name for spec in inputs}
    labels = arrays.get(LABELS) if LABELS not in named else None
    _check_names(set(arrays) - ({LABELS} if labels else set()), named)
    taken = {spec.name: _rows_of_a_run(spec, arrays[spec.name]) for spec in inputs}
    rows = max(taken.values(), default=1)
    if other := next((name for name, count in taken.items() if count != rows), None):
        first = next(name for name, count in taken.items() if count == rows)
        raise errors.DataMismatch(
            f"a run takes {rows} rows of {first!r} and {taken[other]} of {other!r}",
            details={"rows": taken},
        )
    if facts.rows < rows:
        raise errors.DataMismatch(
            f"the data set has {facts.rows} rows, and one run of the model takes {rows}", details={"rows": facts.rows}
        )
    is_batched = any(arrays[spec.name].shape[1:] != spec.shape for spec in inputs)
    if labels is not None and not any(_fits(labels, output, is_batched=is_batched) for output in outputs):
        raise errors.DataMismatch(
            f"the labels, {labels.dtype} {_shown(labels.shape)}, fit no output of the model",
            hint="Integer labels are classes, one a row; labels of floating-point numbers have an output's shape. "
            "Without labels, builds are compared with the reference alone.",
            details={"labels": list(labels.shape), "outputs": {spec.name: list(spec.shape) for spec in outputs}},
        )
    return Fit(rows=rows, runs=facts.rows // rows, labels=labels)


def split(facts: DataFacts, found: Fit, *, calibrates: bool) -> Split:
    """Divide the runs; with ``calibrates``, one of every four calibrates a narrower build. Raises DataMismatch."""
    most = max(1, min(_MOST_RUNS, _MOST_BYTES // max(1, found.rows * _bytes_of_a_row(facts))))
    every = range(found.runs)
    calibration = _one_of_each(every) if calibrates else []
    judging = sorted({*every} - {*calibration})
    if not judging:
        raise errors.DataMismatch(
            f"int8 and bf16 need rows that calibrate and others that judge, at least {2 * found.rows}",
            hint="Supply more rows, or precision f32 or fp16.",
            details={"runs": found.runs},
        )
    return Split(
        calibration=tuple(some(calibration, min(most, _MOST_CALIBRATION_RUNS))), judging=tuple(some(judging, most))
    )


def _one_of_each(runs: range) -> list[int]:
    """Return one run of every four, always the same, at no regular distance: classes may take turns in a file."""
    draws = random.Random(0)  # noqa: S311 - a sample, no secret
    groups = [runs[start : start + _CALIBRATES_ONE_IN] for start in runs[::_CALIBRATES_ONE_IN]]
    return [draws.choice(group) for group in groups]


def _bytes_of_a_row(facts: DataFacts) -> int:
    return sum(
        math.prod(size for size in spec.shape[1:] if isinstance(size, int)) * _bytes_of(spec.dtype)
        for spec in facts.arrays
    )


def _bytes_of(dtype: str) -> int:
    """Of an element of a numpy dtype: 4 for ``float32``."""
    return int("".join(filter(str.isdigit, dtype)) or 8) // 8


def some(runs: Sequence[int], most: int) -> Sequence[int]:
    """Return at most ``most`` of the runs, spread evenly: the rows of a file are often sorted by class."""
    return runs if len(runs) <= most else [runs[place * len(runs) // most] for place in range(most)]


def _check_names(given: set[str], wanted: set[str]) -> None:
    if given == wanted:
        return
    lacking, extra = sorted(wanted - given), sorted(given - wanted)
    faults = [f"lacks {', '.join(map(repr, lacking))}"] if lacking else []
    faults += [f"has {', '.join(map(repr, extra))}, which the model does not"] if extra else []
    raise errors.DataMismatch(
        f"the data set {' and '.join(faults)}",
        hint="Supply one array per input, with its name, and labels as 'labels'.",
        details={"lacking": lacking, "unknown": extra},
    )


def _rows_of_a_run(wanted: TensorSpec, given: TensorSpec) -> int:
    if given.dtype != wanted.dtype:
        raise errors.DataMismatch(
            f"array {wanted.name!r} is {given.dtype}, and the input is {wanted.dtype}",
            hint=f"Convert it: {wanted.name}.astype({wanted.dtype!r}).",
            details={"array": wanted.name, "given": given.dtype, "expected": wanted.dtype},
        )
    row = given.shape[1:]
    if row == wanted.shape:
        return 1
    batch = wanted.shape[0] if wanted.shape else None
    if isinstance(batch, int) and wanted.shape[1:] == row:
        return batch
    raise errors.DataMismatch(
        f"a row of array {wanted.name!r} is {_shown(row)}, and the input is {_shown(wanted.shape)}",
        hint="A row is one sample of the input's batch, or the whole input.",
        details={"array": wanted.name, "row": list(row), "expected": list(wanted.shape)},
    )


def _fits(labels: TensorSpec, output: TensorSpec, *, is_batched: bool) -> bool:
    """Whether these can be labels of the output, whose first axis is the batch's; symbolic sizes of it fit any."""
    row, found = labels.shape[1:], list(output.shape)
    while len(found) > 2 and found[-1] == 1:
        # Trailing dimensions of one, left by a convolution over an image.
        found.pop()
    if not output.dtype.startswith("float"):
        return False
    last = None if labels.dtype.startswith("float") else -1
    return _alike(row, found[1:last]) or (not is_batched and _alike(row, found[:last]))


def _alike(given: Sequence[object], wanted: Sequence[object]) -> bool:
    return len(given) == len(wanted) and all(
        not isinstance(size, int) or size == mine for mine, size in zip(given, wanted, strict=True)
    )


def _shown(shape: Sequence[object]) -> str:
    return "×".join(map(str, shape)) or "a single number"
