"""Whether two builds of one operator compute the same. Arrays are numpy's, which only the engines have."""

from __future__ import annotations

from typing import Any

from tuner.engines.protocol.messages import Json

TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
"""Of the largest value of the output: how far sums in another order may be apart. Integers are exact."""
UNWRITTEN = 77
"""What outputs hold beforehand, so that an element which nobody writes is wrong."""
_LARGEST = 1e308


def fill(generator: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Random input: within [-1, 1], or small whole numbers, of which sums overflow in no order.

    Wide integers are indices as a rule: 0 and 1, which are within any axis worth one.
    """
    if dtype.startswith(("float", "bfloat")):
        return generator.uniform(-1, 1, shape).astype(dtype)
    return generator.integers(0, 8 if dtype in ("int8", "uint8", "int16") else 2, shape).astype(dtype)


def compare(expected: Any, actual: Any) -> Json:
    """``{max_abs, max_rel, wrong}`` of two arrays of one shape; ``max_rel`` is the share of the largest value."""
    tolerance = TOLERANCES.get(str(expected.dtype), 0.0)
    wanted, found = (array.astype("float64") for array in (expected, actual))
    apart = abs(wanted - found)
    # Where both are the same infinity, or neither is a number, they agree.
    apart[(wanted == found) | ((wanted != wanted) & (found != found))] = 0.0
    apart[apart != apart] = _LARGEST
    furthest = min(float(apart.max(initial=0.0)), _LARGEST)
    finite = abs(wanted[abs(wanted) < _LARGEST])
    largest = float(finite.max(initial=0.0))
    share = min(furthest / largest, _LARGEST) if largest else furthest
    return {"max_abs": furthest, "max_rel": share, "wrong": share > tolerance}


def worst(comparisons: list[Json]) -> Json:
    """Of several outputs."""
    return max(comparisons, key=lambda each: (each["wrong"], each["max_rel"]))
