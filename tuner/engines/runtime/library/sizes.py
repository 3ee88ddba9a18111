"""Sizes of inputs that a library has entry points for, and how it serves sizes between them."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.engines.runtime.library.plan import Kind, Plan, Tensor

MOST_DIMENSIONS = 8
"""As ``c/sizes.h`` has it."""
Axes = tuple[tuple[int | None, ...], ...]
"""The position of the dimension of each axis of each input or output; None for axes of one size."""


class NotJoinable(Exception):
    """The parts cannot become one library; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Dimension:
    name: str
    splits: bool
    """Other sizes, along the first axis, are made of several runs."""
    pads: bool
    """Inputs may be padded to the next size, and outputs are cut."""

    @property
    def is_exact(self) -> bool:
        return not (self.splits or self.pads)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    dimensions: tuple[Dimension, ...]
    values: tuple[tuple[int, ...], ...]
    """Of each entry point, the value of each dimension."""
    seconds: tuple[float, ...]
    """Of a run of each entry point."""
    input_axes: Axes
    output_axes: Axes
    padding: tuple[bytes, ...]
    """The element that each input is padded with; empty for inputs that are not."""


def align(plan: Plan, like: Plan) -> Plan:
    """Return a plan with its inputs in the order of another one. Raises NotJoinable for other inputs or outputs."""
    for kind, names, wanted in (
        ("inputs", sorted(plan.input_names), sorted(like.input_names)),
        ("outputs", list(plan.output_names), list(like.output_names)),
    ):
        if names != wanted:
            raise NotJoinable(f"the parts have different {kind}: {', '.join(wanted)}; {', '.join(names)}")
    place_of = {name: place for place, name in enumerate(like.input_names)}
    moved = {plan.tensors[number].index: place_of[name] for name, number in _inputs(plan)}
    order = sorted(range(len(plan.inputs)), key=lambda place: place_of[plan.input_names[place]])
    tensors = [replace(each, index=moved[each.index]) if each.kind is Kind.INPUT else each for each in plan.tensors]
    aligned = replace(
        plan,
        tensors=tensors,
        inputs=[plan.inputs[place] for place in order],
        input_names=[plan.input_names[place] for place in order],
    )
    for (name, mine), (_, other) in zip(_operands(aligned), _operands(like), strict=True):
        if (mine.dtype, len(mine.shape)) != (other.dtype, len(other.shape)):
            kinds = f"{other.dtype}{list(other.shape)} and {mine.dtype}{list(mine.shape)}"
            raise NotJoinable(f"{name} differs between the parts: {kinds}")
    return aligned


def _inputs(plan: Plan) -> Iterator[tuple[str, int]]:
    return zip(plan.input_names, plan.inputs, strict=True)


def _operands(plan: Plan) -> list[tuple[str, Tensor]]:
    outputs = zip(plan.output_names, plan.outputs, strict=True)
    return [(name, plan.tensors[number]) for name, number in (*_inputs(plan), *outputs)]


def describe(
    plans: Sequence[Plan],
    dimensions: Sequence[Dimension],
    values: Sequence[Sequence[int]],
    seconds: Sequence[float],
    axes: Mapping[str, Sequence[str | None]],
    padding: Mapping[str, float],
) -> Sizes:
    """Return how a library of aligned plans serves sizes. ``axes`` are names of dimensions by input.

    Dimensions whose sizes the outputs do not follow are served exactly. Raises NotJoinable.
    """
    _require_distinct(dimensions, values, seconds)
    places = {each.name: place for place, each in enumerate(dimensions)}
    input_axes = tuple(_axes_of(plans, place, values, places, axes) for place in range(len(plans[0].inputs)))
    unused = places.keys() - {dimensions[axis].name for each in input_axes for axis in each if axis is not None}
    if unused:
        raise NotJoinable(f"no input has the dimension {', '.join(sorted(unused))}")
    shapes = [[plan.tensors[number].shape for number in plan.outputs] for plan in plans]
    output_axes = _output_axes(shapes, values)
    dimensions = _flexible(dimensions, values, shapes, input_axes, output_axes)
    return Sizes(
        dimensions=tuple(dimensions),
        values=tuple(map(tuple, values)),
        seconds=tuple(map(float, seconds)),
        input_axes=input_axes,
        output_axes=output_axes,
        padding=tuple(_padding(plans[0], each, dimensions, input_axes, padding) for each in range(len(input_axes))),
    )


def _require_distinct(
    dimensions: Sequence[Dimension], values: Sequence[Sequence[int]], seconds: Sequence[float]
) -> None:
    names = [each.name for each in dimensions]
    if not 1 <= len(names) <= MOST_DIMENSIONS or len(set(names)) != len(names):
        raise NotJoinable(f"a library has 1 to {MOST_DIMENSIONS} dimensions with different names, not {names}")
    if any(len(each) != len(names) for each in values):
        raise NotJoinable("each part needs a value of each dimension")
    if len(set(map(tuple, values))) != len(values):
        raise NotJoinable("two parts have the same sizes")
    if sum(each.splits for each in dimensions) > 1:
        raise NotJoinable("only one dimension can be split")
    if not all(0 < each < float("inf") for each in seconds):
        raise NotJoinable("each part needs the seconds of a run, more than 0")


def _axes_of(
    plans: Sequence[Plan],
    place: int,
    values: Sequence[Sequence[int]],
    places: Mapping[str, int],
    axes: Mapping[str, Sequence[str | None]],
) -> tuple[int | None, ...]:
    """Check the shapes of an input in all plans against its dimensions and return these."""
    name = plans[0].input_names[place]
    shapes = [plan.tensors[plan.inputs[place]].shape for plan in plans]
    named = axes.get(name, [None] * len(shapes[0]))
    unknown = [each for each in named if each is not None and each not in places]
    if len(named) != len(shapes[0]) or unknown:
        raise NotJoinable(f"input {name} has {len(shapes[0])} axes; their dimensions are given as {list(named)}")
    found = tuple(None if each is None else places[each] for each in named)
    for shape, part in zip(shapes, values, strict=True):
        expected = [shapes[0][axis] if each is None else part[each] for axis, each in enumerate(found)]
        if list(shape) != expected:
            raise NotJoinable(f"input {name} of a part is {list(shape)}; its sizes say {expected}")
    return found


def _output_axes(shapes: Sequence[Sequence[tuple[int, ...]]], values: Sequence[Sequence[int]]) -> Axes:
    """Return the dimensions that axes of outputs follow: those whose values they have in all parts, and which vary."""

    def followed(sizes: Sequence[int]) -> int | None:
        if len(set(sizes)) == 1:
            return None
        equal = [place for place in range(len(values[0])) if [part[place] for part in values] == list(sizes)]
        return equal[0] if len(equal) == 1 else None

    return tuple(
        tuple(followed([part[output][axis] for part in shapes]) for axis in range(len(shapes[0][output])))
        for output in range(len(shapes[0]))
    )


def _flexible(
    dimensions: Sequence[Dimension],
    values: Sequence[Sequence[int]],
    shapes: Sequence[Sequence[tuple[int, ...]]],
    input_axes: Axes,
    output_axes: Axes,
) -> list[Dimension]:
    """Return the dimensions without those ways of serving other sizes that could give wrong outputs."""
    # Which axes of outputs would follow a dimension of one size is unknown.
    exact = {place for place in range(len(dimensions)) if len({part[place] for part in values}) == 1}
    exact |= _otherwise_varying(values, shapes, output_axes)
    flexible = []
    for place, each in enumerate(dimensions):
        splits = each.splits and place not in exact and _is_split_by(place, input_axes, output_axes)
        flexible.append(replace(each, splits=splits, pads=each.pads and not splits and place not in exact))
    return flexible


def _is_split_by(place: int, input_axes: Axes, output_axes: Axes) -> bool:
    """Whether a dimension is the first axis, and no other one, of its inputs and of all outputs."""
    inputs = [axes for axes in input_axes if place in axes]
    return all(axes and axes[0] == place and place not in axes[1:] for axes in (*inputs, *output_axes))


def _otherwise_varying(
    values: Sequence[Sequence[int]], shapes: Sequence[Sequence[tuple[int, ...]]], output_axes: Axes
) -> set[int]:
    """Return the dimensions on which axes of outputs depend that are not equal to one of them."""
    others = [
        [part[output][axis] for part in shapes]
        for output, axes in enumerate(output_axes)
        for axis, followed in enumerate(axes)
        if followed is None
    ]
    found: set[int] = set()

    def difference(pair: tuple[int, int]) -> list[int]:
        return [place for place in range(len(values[0])) if values[pair[0]][place] != values[pair[1]][place]]

    # Parts that differ in one dimension show which one it is.
    for pair in sorted(itertools.combinations(range(len(values)), 2), key=lambda pair: len(difference(pair))):
        varying = difference(pair)
        if found.isdisjoint(varying) and any(sizes[pair[0]] != sizes[pair[1]] for sizes in others):
            found.update(varying)
    return found


def _padding(
    plan: Plan, place: int, dimensions: Sequence[Dimension], input_axes: Axes, padding: Mapping[str, float]
) -> bytes:
    name, dtype = plan.input_names[place], plan.tensors[plan.inputs[place]].dtype
    if not any(axis is not None and dimensions[axis].pads for axis in input_axes[place]):
        return b""
    if name not in padding:
        raise NotJoinable(f"input {name} has no value to pad it with")
    try:
        return element(dtype, padding[name])
    except (ValueError, OverflowError, struct.error) as error:
        raise NotJoinable(f"input {name} is {dtype} and cannot be padded with {padding[name]}") from error


def element(dtype: str, value: float) -> bytes:
    """Return the bytes of a number as an element of a tensor. Raises ValueError, OverflowError or struct.error."""
    if dtype == "bfloat16":
        [bits] = struct.unpack("<I", struct.pack("<f", value))
        # Round to the nearest, ties to even.
        return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    if dtype.startswith("float"):
        return struct.pack({"float16": "<e", "float32": "<f", "float64": "<d"}[dtype], value)
    if int(value) != value:
        raise ValueError(value)
    if dtype == "bool":
        return bytes([bool(value)])
    return int(value).to_bytes(int(dtype.lstrip("uint")) // 8, "little", signed=dtype.startswith("int"))
