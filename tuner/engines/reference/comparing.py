"""Comparing outputs with the reference's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.engines.protocol.messages import Json
from tuner.engines.reference.arrays import Arrays

TOLERANCES = {
    "float64": (1e-9, 1e-7),
    "float32": (1e-5, 5e-4),
    "float16": (1e-3, 1e-2),
}
"""Absolute tolerance, and tolerance relative to the output's largest magnitude; integers and booleans must be equal.

The relative one is about 4000 units in the last place for float32: correct compilations of deep networks were seen
within 1e-5, wrong ones off by 1e-1 and more.
"""
HALF_TOLERANCES = (1e-3, 2e-2)
"""Of floating-point outputs of a network that computes in fp16, likewise.

Each rounding of a number with 11 significant bits is off by up to 5e-4 of it; roundings of some hundred layers add up
like a random walk, to about 5e-3 of the largest output. Wrong results were seen off by 1e-1 and more.
"""
LARGEST = 1e308
"""Stands for an infinite or undefined error, which JSON cannot carry."""


def compare(expected: Arrays, actual: Arrays, *, precision: str = "f32") -> list[Json]:
    """One entry for every expected output; a missing or wrong-shaped one fails with the largest error.

    ``precision`` is what ``actual`` was computed with: ``f32`` or ``fp16``.
    """
    return [_compare(name, array, actual.get(name), precision) for name, array in expected.items()]


def _compare(name: str, expected: Any, actual: Any, precision: str) -> Json:
    dtype = expected.dtype.name
    atol, rtol = TOLERANCES.get(dtype, (0.0, 0.0))
    if precision == "fp16" and dtype in TOLERANCES:
        atol, rtol = HALF_TOLERANCES
    max_abs, scale = _errors(expected, actual)
    max_rel = max_abs / scale if scale > 0 else (0.0 if max_abs == 0 else LARGEST)
    return {
        "output": name,
        "dtype": dtype,
        "max_abs": max_abs,
        "max_rel": min(max_rel, LARGEST),
        "atol": atol,
        "rtol": rtol,
        "passed": bool(max_abs <= atol + rtol * scale),
    }


def _errors(expected: Any, actual: Any) -> tuple[float, float]:
    """The largest absolute error and the largest finite magnitude in ``expected``."""
    if actual is None or actual.shape != expected.shape or actual.dtype != expected.dtype:
        return LARGEST, 0.0
    if expected.size == 0:
        return 0.0, 0.0
    wide_expected, wide_actual = _wide(expected), _wide(actual)
    finite = np.isfinite(wide_expected)
    scale = float(np.abs(wide_expected[finite]).max(initial=0))
    same_special = np.array_equal(wide_expected[~finite], wide_actual[~finite], equal_nan=True)
    if not same_special or not np.isfinite(wide_actual[finite]).all():
        return LARGEST, min(scale, LARGEST)
    errors = np.abs(wide_actual[finite] - wide_expected[finite])
    return min(float(errors.max(initial=0)), LARGEST), min(scale, LARGEST)


def _wide(array: Any) -> Any:
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    # Python integers never wrap around, as differences of int64 and uint64 would.
    return array.astype(np.float64) if array.dtype.kind in "fb" else array.astype(np.longdouble)
