"""Whether a model computes the same in another size: padded up to it, or cut into several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuner.engines.onnx import arrays, sessions
from tuner.engines.onnx.accuracy import comparing
from tuner.engines.onnx.arrays import Arrays
from tuner.engines.protocol.messages import Json

_MAX_REL = 1e-3
"""What a model computes in another size differs by its rounding, at most by this; what depends on padding, by more."""


def compare(
    small: str, large: str, inputs: Sequence[str], *, padding: Mapping[str, float] | None, threads: int
) -> Json:
    """Compare one prepared model in two sizes; return the largest error of each output.

    ``inputs`` are ``.npz`` files. With ``padding``, a value for each input, they fit ``small`` and are padded at their
    ends for ``large``; without, they fit ``large``, and their beginnings are what ``small`` gets. In both cases the
    beginnings of the outputs must agree.
    """
    one, other = sessions.cached(small, threads), sessions.cached(large, threads)
    found: dict[str, Json] = {}
    for path in inputs:
        given = arrays.load(path)
        if padding is None:
            whole, part = given, _cut(given, _shapes(one))
        else:
            part, whole = given, _padded(given, _shapes(other), padding)
        expected, actual = sessions.run(one, part), sessions.run(other, whole)
        shapes = {name: array.shape for name, array in expected.items()}
        for error in comparing.compare(expected, _cut(actual, shapes), max_rel=_MAX_REL):
            known = found.setdefault(error["output"], error)
            if (not error["passed"], error["max_rel"]) > (not known["passed"], known["max_rel"]):
                found[error["output"]] = error
    return {"outputs": list(found.values())}


def _shapes(session: Any) -> dict[str, tuple[int, ...]]:
    return {value.name: tuple(value.shape) for value in session.get_inputs()}


def _cut(given: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
    return {name: given[name][tuple(map(slice, shape))].copy() for name, shape in shapes.items()}


def _padded(given: Arrays, shapes: Mapping[str, tuple[int, ...]], padding: Mapping[str, float]) -> Arrays:
    def widen(name: str, array: Any) -> Any:
        widths = [(0, size - have) for size, have in zip(shapes[name], array.shape, strict=True)]
        return np.pad(array, widths, constant_values=padding.get(name, 0))

    return {name: widen(name, array) for name, array in given.items() if name in shapes}
