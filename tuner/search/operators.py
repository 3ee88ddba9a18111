"""Single operators as models: validation of the description, and creation of the one-node model. Data, never code."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from domain import errors
from tuner.host.inspection import Inspector

DTYPE = "float32"
"""Type of all tensors. ONNX Runtime has no float16 kernels on CPUs, so the prepared model would cast to float32."""
ATTRIBUTES = ("strides", "padding", "dilation", "groups")
MOST_ELEMENTS = 1 << 27
"""Limit over inputs, weights and output: 512 MiB of float32."""
_MOST_ATTRIBUTE = 1 << 12

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class OperatorSpec:
    """Description of an operator. ``attributes`` are single numbers for all axes, or one number per axis;
    ``padding`` may also have two: all beginnings, then all ends."""

    operator: str
    shapes: Mapping[str, Sequence[int]]
    dtype: str = DTYPE
    attributes: Mapping[str, int | Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CheckedOperator:
    """A validated description with all attributes."""

    operator: str
    shapes: dict[str, Shape]
    attributes: dict[str, list[int]]
    """``strides``, ``padding`` (beginnings, then ends), ``dilation`` and ``groups`` (one number) of convolutions."""
    output: Shape

    @property
    def name(self) -> str:
        shapes = " ∗ ".join("×".join(map(str, shape)) for shape in self.shapes.values())
        unusual = [
            f"{name}={','.join(map(str, values))}"
            for name, values in self.attributes.items()
            if any(value != (0 if name == "padding" else 1) for value in values)
        ]
        return " ".join([self.operator, shapes, *unusual])


def check(spec: OperatorSpec) -> CheckedOperator:
    """Validate a description. Raises InvalidOperator."""
    if spec.operator not in _KINDS:
        raise _unknown("operator", spec.operator, list(_KINDS))
    if spec.dtype != DTYPE:
        hint = f"Use {DTYPE!r}; to compute in float16, tune it with precision 'fp16'."
        raise errors.InvalidOperator(f"unsupported dtype {spec.dtype[:80]!r}", hint=hint, details={"known": [DTYPE]})
    kind = _KINDS[spec.operator]
    shapes = _shapes(spec, kind)
    attributes = _attributes(spec, kind)
    output = kind.output(shapes, attributes)
    if min(output) < 1:
        raise errors.InvalidOperator(f"{spec.operator} would have an output of {list(output)}")
    elements = sum(math.prod(shape) for shape in (*shapes.values(), output))
    if elements > MOST_ELEMENTS:
        raise errors.InvalidOperator(
            f"its tensors have {elements} elements; the limit is {MOST_ELEMENTS}", hint="Tune a smaller operator."
        )
    return CheckedOperator(operator=spec.operator, shapes=shapes, attributes=attributes, output=output)


def make_model(inspector: Inspector, operator: CheckedOperator, out_path: Path) -> None:
    """Write an ONNX model of the operator; the first tensor is the input, weights are seeded constants.

    Raises EngineStartFailed and InvalidModel.
    """
    inspector.make_operator(
        {
            "operator": operator.operator,
            "shapes": {name: list(shape) for name, shape in operator.shapes.items()},
            "dtype": DTYPE,
            "attributes": operator.attributes,
            "output": list(operator.output),
        },
        out_path,
    )


_Output = Callable[[Mapping[str, Shape], Mapping[str, list[int]]], Shape]


@dataclass(frozen=True, kw_only=True)
class _Kind:
    tensors: dict[str, tuple[int, ...]]
    """Tensors by name, with their allowed ranks."""
    axes: int = 0
    """Spatial axes of a convolution."""
    output: _Output
    example: str
    """Example of a specification for the command line."""

    @property
    def hint(self) -> str:
        return f"Example: {self.example!r}."


def _shapes(spec: OperatorSpec, kind: _Kind) -> dict[str, Shape]:
    for name in spec.shapes:
        if name not in kind.tensors:
            attributes = ATTRIBUTES if kind.axes else ()
            raise _unknown(f"tensor or attribute of {spec.operator}", name, [*kind.tensors, *attributes])
    missing = [name for name in kind.tensors if name not in spec.shapes]
    if missing:
        raise errors.InvalidOperator(
            f"{spec.operator} has tensors {' and '.join(kind.tensors)}; {' and '.join(missing)} is missing",
            hint=kind.hint,
        )
    for name, ranks in kind.tensors.items():
        shape = spec.shapes[name]
        if len(shape) not in ranks:
            raise errors.InvalidOperator(
                f"{name} of {spec.operator} has {' or '.join(map(str, ranks))} dimensions, not {len(shape)}",
                hint=kind.hint,
            )
        if not all(0 < size <= MOST_ELEMENTS for size in shape):
            raise errors.InvalidOperator(f"{name} cannot have the shape {list(shape)}"[:300])
    return {name: tuple(spec.shapes[name]) for name in kind.tensors}


def _attributes(spec: OperatorSpec, kind: _Kind) -> dict[str, list[int]]:
    known = ATTRIBUTES if kind.axes else ()
    for name in spec.attributes:
        if name not in known:
            raise _unknown(f"attribute of {spec.operator}", name, list(known))
    if not kind.axes:
        return {}
    if spec.operator == "depthwise_conv2d" and "groups" in spec.attributes:
        raise errors.InvalidOperator("depthwise_conv2d always has as many groups as channels", hint="Remove groups.")
    found = {
        name: _spread(name, spec.attributes.get(name, default), kind.axes * (2 if name == "padding" else 1), kind.axes)
        for name, default in (("strides", 1), ("padding", 0), ("dilation", 1))
    }
    found["groups"] = _spread("groups", spec.attributes.get("groups", 1), 1, 1)
    if spec.operator == "depthwise_conv2d":
        found["groups"] = [spec.shapes["x"][1]]
    return found


def _spread(name: str, given: int | Sequence[int], count: int, axes: int) -> list[int]:
    values = [given] * count if isinstance(given, int) else list(given)
    if len(values) == axes < count:
        values = values * 2
    least = 0 if name == "padding" else 1
    if len(values) != count or not all(least <= value <= _MOST_ATTRIBUTE for value in values):
        raise errors.InvalidOperator(f"{name} cannot be {given}"[:300], hint=f"Give one number, or {axes}.")
    return values


def _matmul(shapes: Mapping[str, Shape], _: Mapping[str, list[int]]) -> Shape:
    first, second = shapes.values()
    if first[-1] != second[-2]:
        raise errors.InvalidOperator(
            f"the inner sizes {first[-1]} and {second[-2]} differ", hint="The first is […, m, k], the second […, k, n]."
        )
    if len(second) == 3 and first[0] != second[0]:
        raise errors.InvalidOperator(f"the batches {first[0]} and {second[0]} differ")
    return (*first[:-1], second[-1])


def _dense(shapes: Mapping[str, Shape], _: Mapping[str, list[int]]) -> Shape:
    x, w = shapes["x"], shapes["w"]
    if x[1] != w[1]:
        raise errors.InvalidOperator(f"x has {x[1]} features and w expects {w[1]}", hint="w is [outputs, features].")
    return (x[0], w[0])


def _conv(shapes: Mapping[str, Shape], attributes: Mapping[str, list[int]]) -> Shape:
    x, w, groups = shapes["x"], shapes["w"], attributes["groups"][0]
    if x[1] != w[1] * groups or w[0] % groups:
        raise errors.InvalidOperator(
            f"x has {x[1]} channels; w has {w[0]} outputs and expects {w[1]} channels in each of {groups} groups",
            hint="w is [outputs, channels / groups, kernel…].",
        )
    windows = _windows(w, attributes)
    padded = [size + before + after for size, (before, after) in zip(x[2:], _pads(attributes), strict=True)]
    strides = attributes["strides"]
    return (x[0], w[0], *((size - win) // step + 1 for size, win, step in zip(padded, windows, strides, strict=True)))


def _transposed(shapes: Mapping[str, Shape], attributes: Mapping[str, list[int]]) -> Shape:
    x, w, groups = shapes["x"], shapes["w"], attributes["groups"][0]
    if x[1] != w[0] or w[0] % groups:
        raise errors.InvalidOperator(
            f"x has {x[1]} channels and w expects {w[0]} in {groups} groups",
            hint="w is [channels, outputs / groups, kernel…].",
        )
    sizes = zip(x[2:], attributes["strides"], _pads(attributes), _windows(w, attributes), strict=True)
    grown = [(size - 1) * step - before - after + window for size, step, (before, after), window in sizes]
    return (x[0], w[1] * groups, *grown)


def _windows(w: Shape, attributes: Mapping[str, list[int]]) -> list[int]:
    return [(size - 1) * step + 1 for size, step in zip(w[2:], attributes["dilation"], strict=True)]


def _pads(attributes: Mapping[str, list[int]]) -> list[tuple[int, int]]:
    padding = attributes["padding"]
    axes = len(padding) // 2
    return list(zip(padding[:axes], padding[axes:], strict=True))


_KINDS = {
    "matmul": _Kind(tensors={"x": (2, 3), "w": (2,)}, output=_matmul, example="matmul x=128,768 w=768,3072"),
    "batch_matmul": _Kind(
        tensors={"a": (3,), "b": (3,)}, output=_matmul, example="batch_matmul a=12,128,64 b=12,64,128"
    ),
    "dense": _Kind(tensors={"x": (2,), "w": (2,)}, output=_dense, example="dense x=1,512 w=1000,512"),
    "conv1d": _Kind(
        tensors={"x": (3,), "w": (3,)}, axes=1, output=_conv, example="conv1d x=1,16,128 w=32,16,3 padding=1"
    ),
    "conv2d": _Kind(
        tensors={"x": (4,), "w": (4,)}, axes=2, output=_conv, example="conv2d x=1,64,56,56 w=64,64,3,3 padding=1"
    ),
    "conv3d": _Kind(
        tensors={"x": (5,), "w": (5,)}, axes=3, output=_conv, example="conv3d x=1,8,16,28,28 w=16,8,3,3,3 padding=1"
    ),
    "depthwise_conv2d": _Kind(
        tensors={"x": (4,), "w": (4,)},
        axes=2,
        output=_conv,
        example="depthwise_conv2d x=1,32,56,56 w=32,1,3,3 padding=1",
    ),
    "conv2d_transpose": _Kind(
        tensors={"x": (4,), "w": (4,)},
        axes=2,
        output=_transposed,
        example="conv2d_transpose x=1,32,28,28 w=32,16,2,2 strides=2",
    ),
}
OPERATORS = tuple(_KINDS)


def _unknown(noun: str, given: str, known: list[str]) -> errors.InvalidOperator:
    near = difflib.get_close_matches(given, known, n=3, cutoff=0.4)
    hint: str | None = None
    if near or known:
        hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Supported: {', '.join(known)}."
    details: dict[str, Any] = {"known": known, "near_matches": near}
    return errors.InvalidOperator(f"unknown {noun} {given[:80]!r}", hint=hint, details=details)
