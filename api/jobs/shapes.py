"""Validation of input shapes against the model."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence

from domain import errors, sizes
from domain.models import ModelFacts, TensorSpec
from domain.sizes import Choice

_MOST = 2**31 - 1
_MOST_ELEMENTS = 2**33
"""Limit over all inputs, 32 GiB of f32. Larger inputs would only exhaust the host's memory later."""


def check_given(facts: ModelFacts, shapes: Mapping[str, Sequence[Choice]]) -> None:
    """Check each value of a request by itself. Raises ShapeMismatch."""
    inputs = {spec.name: spec for spec in facts.inputs}
    for name, choices in shapes.items():
        if name not in inputs:
            raise _unknown(name, list(inputs))
        every = [sizes.values_of(choice) for choice in choices]
        longest = max(map(len, every), default=1)
        for place in range(longest):
            _check_one(inputs[name], [values[min(place, len(values) - 1)] if values else 0 for values in every])


def check(facts: ModelFacts, shapes: Mapping[str, Sequence[int]]) -> None:
    """Check the shapes of one size of a request. Raises ShapeRequired for a dynamic dimension without a value, and
    ShapeMismatch if the inputs are too large."""
    missing: list[dict[str, object]] = [
        {"input": spec.name, "axis": axis, "symbol": dimension}
        for spec in facts.inputs
        if spec.name not in shapes
        for axis, dimension in enumerate(spec.shape)
        if not isinstance(dimension, int)
    ]
    if missing:
        raise _required(missing, {spec.name: spec for spec in facts.inputs})
    _check_size(facts, shapes)


def parse(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Parse texts of the form ``NAME:1,3,224,224``; a name may contain colons. Raises ShapeMismatch."""
    found: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, listed = text.rpartition(":")
        numbers = listed.split(",") if listed else []
        if not name or not all(number.isascii() and number.isdigit() for number in numbers):
            raise errors.ShapeMismatch(f"{text[:80]!r} is not a valid shape", hint="Write NAME:1,3,224,224.")
        found[name] = tuple(int(number[:10]) for number in numbers)
    return found


def _unknown(name: str, names: list[str]) -> errors.ShapeMismatch:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    return errors.ShapeMismatch(
        f"the model has no input {name[:80]!r}; its inputs are {', '.join(map(repr, names))}",
        hint=f"Did you mean {' or '.join(map(repr, near))}?" if near else None,
        details={"inputs": names, "near_matches": near},
    )


def _check_one(spec: TensorSpec, shape: Sequence[int]) -> None:
    details = {"input": spec.name, "expected": list(spec.shape), "given": list(shape)}
    if len(shape) != len(spec.shape):
        raise errors.ShapeMismatch(
            f"input {spec.name!r} has {len(spec.shape)} dimensions {_shown(spec)}, not {len(shape)}", details=details
        )
    for axis, (given, wanted) in enumerate(zip(shape, spec.shape, strict=True)):
        if not 0 < given <= _MOST:
            raise errors.ShapeMismatch(f"dimension {axis} of input {spec.name!r} cannot be {given}", details=details)
        if isinstance(wanted, int) and given != wanted:
            raise errors.ShapeMismatch(
                f"dimension {axis} of input {spec.name!r} is {wanted} in the model, not {given}", details=details
            )


def _check_size(facts: ModelFacts, shapes: Mapping[str, Sequence[int]]) -> None:
    elements = {
        spec.name: math.prod(size for size in shapes.get(spec.name, spec.shape) if isinstance(size, int))
        for spec in facts.inputs
    }
    if sum(elements.values()) > _MOST_ELEMENTS:
        largest = max(elements, key=elements.__getitem__)
        raise errors.ShapeMismatch(
            f"the inputs have {sum(elements.values())} elements, {largest!r} alone {elements[largest]}; "
            f"the limit is {_MOST_ELEMENTS}",
            details={"elements": elements, "limit": _MOST_ELEMENTS},
        )


def _required(missing: list[dict[str, object]], inputs: Mapping[str, TensorSpec]) -> errors.ShapeRequired:
    names = list(dict.fromkeys(str(dimension["input"]) for dimension in missing))
    shown = " and ".join(f"{name!r} {_shown(inputs[name])}" for name in names)
    example = " ".join(f"--input-shape {name}:{_example(inputs[name])}" for name in names)
    return errors.ShapeRequired(
        f"the model has dimensions without a fixed size: {shown}",
        hint=f"Give every dimension a value, for example: {example}",
        details={"dimensions": missing},
    )


def _shown(spec: TensorSpec) -> str:
    return f"[{', '.join('?' if dimension is None else str(dimension) for dimension in spec.shape)}]"


def _example(spec: TensorSpec) -> str:
    """Return an example shape: fixed sizes, and a letter for each dynamic dimension."""
    letters = iter("NMKPQRST" * len(spec.shape))
    return ",".join(str(size) if isinstance(size, int) else next(letters) for size in spec.shape)
