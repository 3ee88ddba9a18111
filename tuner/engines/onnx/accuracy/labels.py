"""Accuracy against a user's labels, of the reference and of a build side by side."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tuner.engines.onnx.arrays import Arrays
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure

_FIVE = 5


def compare(labels: Any, expected: Arrays, actual: Arrays) -> Json:
    """Return ``{output, count, reference, build}`` of the first output that the labels of one run fit.

    Integer labels are classes: ``reference`` and ``build`` are ``{top1, top5}``, how many rows have the label's class
    first and among the first five (None with five classes or fewer). Labels of floating-point numbers have the output's
    shape: these are ``{error}``, the sum of absolute errors. ``count`` is the number of rows or elements. Raises
    EngineFailure ``data_mismatch``.
    """
    for name, wanted in expected.items():
        found = actual.get(name)
        if wanted.dtype.kind != "f":
            continue
        # That an output lacks or has another shape is found by the comparison with the reference.
        sides = (wanted, found if found is not None and found.shape == wanted.shape else np.full_like(wanted, np.nan))
        classes = _classes(wanted)
        if labels.dtype.kind == "f" and labels.size == wanted.size:
            reference, build = (_error(labels, output) for output in sides)
        elif labels.dtype.kind in "iub" and classes and labels.size * classes == wanted.size:
            _check_range(labels, classes)
            reference, build = (_hits(labels, output, classes) for output in sides)
        else:
            continue
        return {"output": name, "count": int(labels.size), "reference": reference, "build": build}
    shapes = ", ".join(f"{name!r} {list(output.shape)}" for name, output in expected.items())
    raise EngineFailure(
        "data_mismatch", f"labels {labels.dtype.name} {list(labels.shape)} of one run fit no output: {shapes}"
    )


def _classes(output: Any) -> int:
    shape = list(output.shape)
    while len(shape) > 2 and shape[-1] == 1:
        # Trailing dimensions of one, left by a convolution over an image.
        shape.pop()
    return int(shape[-1]) if len(shape) > 1 else 0


def _check_range(labels: Any, classes: int) -> None:
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= classes:
        wrong = lowest if lowest < 0 else highest
        raise EngineFailure("data_mismatch", f"label {wrong} is no class of an output with {classes} classes")


def _error(labels: Any, output: Any) -> Json:
    errors = np.abs(output.reshape(-1).astype(np.float64) - labels.reshape(-1))
    return {"error": float(np.nan_to_num(errors, nan=np.inf).sum())}


def _hits(labels: Any, output: Any, classes: int) -> Json:
    """Of equal values, any may be first."""
    rows = output.reshape(-1, classes)
    right = rows[np.arange(len(rows)), labels.reshape(-1).astype(np.int64)]
    better = np.count_nonzero(rows > right[:, None], axis=1) + np.where(np.isnan(right), math.inf, 0)
    top5 = int(np.count_nonzero(better < _FIVE)) if classes > _FIVE else None
    return {"top1": int(np.count_nonzero(better < 1)), "top5": top5}
