"""Form fields for the dynamic dimensions of a model: one for each symbol, which several inputs may share."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.dashboard.formats import number
from api.models import schemas as model_schemas
from domain.sizes import Choice, shown
from tunesmith import job_draft


@dataclass(frozen=True, kw_only=True)
class OpenDimension:
    field: str
    label: str
    """Its symbol, or its input and axis."""
    places: tuple[tuple[str, int], ...]
    """Input and axis."""
    usual: str
    """Initial value: 1 for a batch dimension, else empty."""


def find(inputs: Sequence[model_schemas.Tensor]) -> list[OpenDimension]:
    """Return the dynamic dimensions in the order of the inputs."""
    places: dict[str, list[tuple[str, int]]] = {}
    labels: dict[str, str] = {}
    for tensor in inputs:
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, int):
                continue
            field = f"symbol:{size}" if size else f"axis:{tensor.name}:{axis}"
            labels[field] = size or f"{tensor.name}, dimension {axis}"
            places.setdefault(field, []).append((tensor.name, axis))
    return [
        OpenDimension(field=field, label=labels[field], places=tuple(where), usual=_usual(where))
        for field, where in places.items()
    ]


def shapes(
    inputs: Sequence[model_schemas.Tensor], dimensions: Sequence[OpenDimension], values: Mapping[str, str]
) -> dict[str, list[Choice | float | str]]:
    """Return shapes of the inputs whose dynamic dimensions all have values; the API validates these."""
    given = {place: values.get(dimension.field, "").strip() for dimension in dimensions for place in dimension.places}
    found: dict[str, list[Choice | float | str]] = {}
    for tensor in inputs:
        open_axes = [axis for axis, size in enumerate(tensor.shape) if not isinstance(size, int)]
        if open_axes and all(given[tensor.name, axis] for axis in open_axes):
            found[tensor.name] = [
                size if isinstance(size, int) else _choice(given[tensor.name, axis])
                for axis, size in enumerate(tensor.shape)
            ]
    return found


def _choice(text: str) -> Choice | float | str:
    """Parse ``1/4/8`` or ``16@6/32@3``; any other text is that of a number, or stays text for the API to reject."""
    if "/" in text or "@" in text:
        with contextlib.suppress(ValueError):
            return job_draft.dimension(text)
    return number(text)


def values(dimensions: Sequence[OpenDimension], given: Mapping[str, Sequence[Choice]]) -> dict[str, str]:
    """Return field values for the shapes of an earlier request."""
    found = {}
    for dimension in dimensions:
        sizes = [given[name][axis] for name, axis in dimension.places if axis < len(given.get(name, ()))]
        if sizes:
            found[dimension.field] = shown(sizes[0])
    return found


def _usual(places: Sequence[tuple[str, int]]) -> str:
    return "1" if all(axis == 0 for _, axis in places) else ""
