"""Sizes: the sets of input shapes that one job compiles a model for, each an entry point of its bundle.

A request names several values of a dimension, and every combination of them is a size. A dimension is known by its
symbolic name in the model, which several inputs may share, else as ``INPUT.AXIS``. The functions expect shapes whose
inputs and ranks are those of the model.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from domain import errors
from domain.models import TensorSpec

MOST = 16
"""Limit of sizes of one job."""
_LEAST_SHARE = 0.5
"""Of an equal share: what the rarest size has at least, before the shares are made to add up to 1."""

_RUNS = 1_000_000_000
"""Runs that express shares as frequencies."""

Choice = int | Sequence[int] | Mapping[int, float]
"""A dimension in a request: its value, several values, or several with the frequency of each."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """One entry point."""

    name: str
    """The value of every dimension that varies, such as ``batch=1, sequence=16``."""
    values: dict[str, int]
    """Those values by the dimension's name: its symbolic name in the model, else ``INPUT.AXIS``."""
    input_shapes: dict[str, tuple[int, ...]]
    """As in ``JobRequest``, with all sizes known."""
    share: float
    """Of the budget, and of the runs that the user expects; the shares of all sizes add up to 1."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Shapes with which the user runs the model."""

    input_shapes: Mapping[str, Sequence[int]]
    count: int
    """Number of runs."""


@dataclass(frozen=True, kw_only=True)
class _Dimension:
    values: tuple[int, ...]
    frequencies: tuple[float, ...] | None
    """None if the request states none."""
    input: str
    """The first input that has it in the request."""


def values_of(choice: Choice) -> tuple[int, ...]:
    """Return the values of a dimension in a request."""
    return (choice,) if isinstance(choice, int) else tuple(choice)


def shapes_of(inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[Choice]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a request with one value for each dimension, or of the first values.

    Inputs that it omits have those of the symbols that they share with other inputs. Raises ShapeMismatch.
    """
    dimensions = _dimensions(inputs, shapes)
    return _shapes(inputs, shapes, {name: dimension.values[0] for name, dimension in dimensions.items()})


def expand(
    inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[Choice]], *, observed: Sequence[Observed] = ()
) -> tuple[Size, ...]:
    """Return the sizes of a request, in the order of its values; none if each dimension has one value.

    Raises ShapeMismatch for a dimension with different values in two inputs, InvalidSizes and InvalidFrequencies.
    """
    dimensions = _dimensions(inputs, shapes)
    varying = {name: dimension for name, dimension in dimensions.items() if len(dimension.values) > 1}
    if not varying:
        if observed:
            raise errors.InvalidFrequencies("frequencies would have no effect: no dimension has several values")
        return ()
    _check_number(varying)
    combinations = [
        dict(zip(varying, values, strict=True)) for values in product(*(each.values for each in varying.values()))
    ]
    weights = _counted(inputs, dimensions, combinations, observed) if observed else _stated(varying)
    fixed = {name: dimension.values[0] for name, dimension in dimensions.items()}
    return tuple(
        Size(
            name=", ".join(f"{name}={value}" for name, value in values.items()),
            values=values,
            input_shapes=_shapes(inputs, shapes, fixed | values),
            share=share,
        )
        for values, share in zip(combinations, shares(weights), strict=True)
    )


def shares(weights: Sequence[float]) -> list[float]:
    """Return shares in proportion to the weights, so that even the rarest size has half of an equal share.

    They add up to 1. Without any weight, they are equal.
    """
    total = sum(weights)
    least = _LEAST_SHARE / len(weights)
    raised = [max(weight / total if total else 0.0, least) for weight in weights]
    return [share / sum(raised) for share in raised]


def shown(choice: Choice) -> str:
    """Return the values of a dimension as text, such as ``1/4/8``, or ``16@6/32@3`` with frequencies."""
    often = choice if isinstance(choice, Mapping) else {}
    return "/".join(f"{value}@{often[value]:g}" if value in often else str(value) for value in values_of(choice))


def choices_of(sizes: Sequence[Size]) -> dict[str, list[Choice]]:
    """Return the shapes of a request for these sizes, each dimension with all its values."""
    found: dict[str, list[Choice]] = {}
    for name in sizes[0].input_shapes if sizes else ():
        axes = zip(*(size.input_shapes[name] for size in sizes), strict=True)
        values = [list(dict.fromkeys(axis)) for axis in axes]
        found[name] = [axis[0] if len(axis) == 1 else axis for axis in values]
    return found


def stated_choices(sizes: Sequence[Size]) -> dict[str, list[Choice]]:
    """Return ``choices_of`` with the frequencies of values in percent, where they are not equal.

    They give the sizes their shares if one dimension varies, or if the frequencies of several are independent.
    """
    choices, observed = choices_of(sizes), frequencies_of(sizes)
    if not observed:
        return choices

    def stated(name: str, axis: int, choice: Choice) -> Choice:
        runs = dict.fromkeys(values_of(choice), 0)
        for each in observed:
            runs[each["input_shapes"][name][axis]] += each["count"]
        percent = {value: float(f"{100 * count / sum(runs.values()):.3g}") for value, count in runs.items()}
        return percent if len(set(percent.values())) > 1 else choice

    return {name: [stated(name, *each) for each in enumerate(shape)] for name, shape in choices.items()}


def frequencies_of(sizes: Sequence[Size]) -> list[dict[str, Any]]:
    """Return observed shapes that give the sizes their shares; none if these are equal."""
    if len({round(size.share * _RUNS) for size in sizes}) <= 1:
        return []
    return [
        {
            "input_shapes": {name: list(shape) for name, shape in size.input_shapes.items()},
            "count": max(1, round(weight * _RUNS)),
        }
        for size, weight in zip(sizes, _weights([size.share for size in sizes]), strict=True)
    ]


def _weights(shares: Sequence[float]) -> list[float]:
    """Return weights that add up to 1 and have these shares."""
    least, rarest = _LEAST_SHARE / len(shares), min(shares)
    if rarest >= least:
        return list(shares)
    # The rarest were raised to ``least`` before all were divided by their sum. Their own weights are unknown, but add
    # up to what the others leave.
    others = [share * least / rarest for share in shares if share > rarest]
    left = max(0.0, 1 - math.fsum(others)) / (len(shares) - len(others))
    return [share * least / rarest if share > rarest else left for share in shares]


def serving(sizes: Sequence[Mapping[str, int]], values: Mapping[str, int], batch: Collection[str] = ()) -> int | None:
    """Return the place of the size that runs inputs with these values; None if none can.

    It is the size with these values, else the smallest one whose values are all at least as large. A value of a
    ``batch`` dimension above the largest counts as the largest, as such a batch is divided.
    """
    largest = {name: max(size[name] for size in sizes) for name in batch if name in sizes[0]}
    wanted = {name: min(value, largest.get(name, value)) for name, value in values.items()}
    able = [place for place, size in enumerate(sizes) if all(size[name] >= value for name, value in wanted.items())]
    return min(able, key=lambda place: math.prod(sizes[place].values()), default=None)


def batch_dimensions(inputs: Sequence[TensorSpec]) -> frozenset[str]:
    """Return the names of the dimensions that are the first one wherever they occur."""
    axes: dict[str, set[int]] = {}
    for spec in inputs:
        for axis, name in enumerate(names_of(spec)):
            if name is not None:
                axes.setdefault(name, set()).add(axis)
    return frozenset(name for name, found in axes.items() if found == {0})


def check_padding(inputs: Sequence[TensorSpec], sizes: Sequence[Size], padding: Mapping[str, float]) -> None:
    """Check that each input may be padded with its value. Raises InvalidPadding."""
    if not padding:
        return
    if not sizes:
        raise errors.InvalidPadding(
            "padding would have no effect: no dimension has several values",
            hint="Remove it, or give a dimension several values, such as --input-shape ids:1,16/32.",
        )
    specs = {spec.name: spec for spec in inputs}
    for name, value in padding.items():
        _check_value(specs, name, value)
        if not set(names_of(specs[name])).intersection(sizes[0].values):
            raise errors.InvalidPadding(
                f"padding of input {name!r} would have no effect: none of its dimensions has several values",
                hint="Remove it.",
                details={"input": name},
            )
    for dimension in sizes[0].values.keys() - batch_dimensions(inputs):
        _check_shared(dimension, [spec.name for spec in inputs if dimension in names_of(spec)], padding)


def _check_shared(dimension: str, sharing: Sequence[str], padding: Mapping[str, float]) -> None:
    """Check that all inputs with a dimension are padded, or none."""
    lacking = [name for name in sharing if name not in padding]
    if lacking and len(lacking) < len(sharing):
        padded = next(name for name in sharing if name in padding)
        raise errors.InvalidPadding(
            f"padding not declared for {' and '.join(map(repr, lacking))}: dimension {dimension!r} of {padded!r} is "
            f"{'its' if len(lacking) == 1 else 'their'} dimension, too",
            hint=f"Declare all inputs with this dimension, such as --pad {lacking[0]}=0.",
            details={"dimension": dimension, "inputs": lacking},
        )


def _check_value(inputs: Mapping[str, TensorSpec], name: str, value: float) -> None:
    if name not in inputs:
        near = difflib.get_close_matches(name, inputs, n=3, cutoff=0.4)
        raise errors.InvalidPadding(
            f"padding names {name[:80]!r}; the model's inputs are {', '.join(map(repr, inputs))}",
            hint=f"Did you mean {' or '.join(map(repr, near))}?" if near else None,
            details={"inputs": list(inputs), "near_matches": near},
        )
    dtype = inputs[name].dtype
    if not _holds(dtype, value):
        raise errors.InvalidPadding(
            f"input {name!r} is {dtype} and cannot hold the padding {value:g}",
            hint=f"Use a value of {dtype}.",
            details={"input": name, "dtype": dtype, "value": value},
        )


_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028235e38, "float64": math.inf}


def _holds(dtype: str, value: float) -> bool:
    """Return whether an element of a numpy dtype can have this value, if need be rounded."""
    if dtype in _LARGEST:
        return math.isfinite(value) and abs(value) <= _LARGEST[dtype]
    if dtype == "bool":
        return value in (0, 1)
    kind, bits = dtype.rstrip("0123456789"), dtype.lstrip("uint")
    if kind not in ("int", "uint") or not bits.isdigit() or not float(value).is_integer():
        return False
    values: int = 2 ** int(bits)
    least = 0 if kind == "uint" else -values // 2
    return least <= int(value) < least + values


def names_of(spec: TensorSpec) -> list[str | None]:
    """Return the name of each dimension; None for those with a fixed size."""
    return [
        None if isinstance(dimension, int) else dimension or f"{spec.name}.{axis}"
        for axis, dimension in enumerate(spec.shape)
    ]


def _dimensions(inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[Choice]]) -> dict[str, _Dimension]:
    """Return the dimensions without a fixed size that a request gives, in the order of the inputs."""
    found: dict[str, _Dimension] = {}
    for spec in inputs:
        for name, choice in zip(names_of(spec), shapes.get(spec.name, ()), strict=False):
            if name is not None:
                given = _given(spec.name, name, choice)
                found[name] = _same(name, found[name], given) if name in found else given
    return found


def _given(of: str, name: str, choice: Choice) -> _Dimension:
    values = values_of(choice)
    if not values:
        raise errors.InvalidSizes(f"dimension {name!r} of input {of!r} has no value")
    if repeated := sorted({value for value in values if values.count(value) > 1}):
        raise errors.InvalidSizes(
            f"dimension {name!r} of input {of!r} has {', '.join(map(str, repeated))} more than once",
            hint="Give each value once. To state how often it occurs, write 16@6/32@3.",
            details={"dimension": name, "values": repeated},
        )
    frequencies = tuple(choice.values()) if isinstance(choice, Mapping) and len(values) > 1 else None
    if frequencies and not all(0 < each < math.inf for each in frequencies):
        raise errors.InvalidFrequencies(f"the frequencies of dimension {name!r} are not all positive numbers")
    return _Dimension(values=values, frequencies=frequencies, input=of)


def _same(name: str, known: _Dimension, given: _Dimension) -> _Dimension:
    """Return a dimension that two inputs have. Raises ShapeMismatch if its values or frequencies differ."""
    pairs = [
        dict(zip(each.values, each.frequencies or [0.0] * len(each.values), strict=True)) for each in (known, given)
    ]
    differ = set(known.values) != set(given.values)
    if differ or (known.frequencies and given.frequencies and pairs[0] != pairs[1]):
        what = f"is {shown(known.values)} in input {known.input!r} and {shown(given.values)} in {given.input!r}"
        raise errors.ShapeMismatch(
            f"dimension {name!r} {what if differ else 'has different frequencies in two inputs'}",
            hint="Both dimensions have the same name in the model: give them the same size"
            f"{'s, or give one input alone' if len(known.values) + len(given.values) > 2 else ''}.",
            details={"symbol": name, "inputs": {each.input: _plain(each.values) for each in (known, given)}},
        )
    if known.frequencies or not given.frequencies:
        return known
    return replace(known, frequencies=tuple(pairs[1][value] for value in known.values))


def _plain(values: tuple[int, ...]) -> int | list[int]:
    return values[0] if len(values) == 1 else list(values)


def _check_number(varying: Mapping[str, _Dimension]) -> None:
    number = math.prod(len(dimension.values) for dimension in varying.values())
    if number > MOST:
        counted = " times ".join(f"{len(dimension.values)} of {name!r}" for name, dimension in varying.items())
        raise errors.InvalidSizes(
            f"the request has {number} sizes, {counted}; the limit is {MOST}",
            hint="Give fewer values, and declare --pad so that inputs in between use the next size.",
            details={"sizes": number, "limit": MOST},
        )


def _stated(varying: Mapping[str, _Dimension]) -> list[float]:
    """Return the frequency of each combination: the product of those of its values."""
    each = (dimension.frequencies or (1.0,) * len(dimension.values) for dimension in varying.values())
    return [math.prod(frequencies) for frequencies in product(*each)]


def _counted(
    inputs: Sequence[TensorSpec],
    dimensions: Mapping[str, _Dimension],
    combinations: Sequence[Mapping[str, int]],
    observed: Sequence[Observed],
) -> list[float]:
    """Return the runs that each combination serves. Raises InvalidFrequencies."""
    if any(dimension.frequencies for dimension in dimensions.values()):
        raise errors.InvalidFrequencies(
            "frequencies are stated with the sizes and given as observed shapes, too", hint="Remove one of them."
        )
    # With the dimensions of one value, which must be large enough as well.
    sizes = [{name: values.get(name, one.values[0]) for name, one in dimensions.items()} for values in combinations]
    batch = batch_dimensions(inputs)
    counts = [0.0] * len(sizes)
    for number, each in enumerate(observed):
        values = dict(_observed(inputs, each, number))
        if lacking := [name for name in combinations[0] if name not in values]:
            raise errors.InvalidFrequencies(
                f"entry {number} of frequencies lacks dimension {lacking[0]!r}", details={"entry": number}
            )
        place = serving(sizes, {name: value for name, value in values.items() if name in dimensions}, batch)
        if place is None:
            raise errors.InvalidFrequencies(
                f"no size is large enough for entry {number} of frequencies: "
                f"{', '.join(f'{name}={value}' for name, value in values.items())}",
                hint="Add a larger size, or remove the entry.",
                details={"entry": number, "values": values},
            )
        counts[place] += each.count
    return counts


def _observed(inputs: Sequence[TensorSpec], observed: Observed, number: int) -> Iterator[tuple[str, int]]:
    """Yield the values of one entry by dimension. Raises InvalidFrequencies."""
    specs = {spec.name: spec for spec in inputs}
    seen: dict[str, int] = {}
    for name, shape in observed.input_shapes.items():
        if name not in specs or len(shape) != len(specs[name].shape):
            what = "is no input of the model" if name not in specs else f"has not {len(shape)} dimensions"
            raise errors.InvalidFrequencies(
                f"entry {number} of frequencies: {name[:80]!r} {what}",
                details={"entry": number, "inputs": {spec.name: list(spec.shape) for spec in inputs}},
            )
        for dimension, size, fixed in zip(names_of(specs[name]), shape, specs[name].shape, strict=True):
            if size < 1 or size != (seen.setdefault(dimension, size) if dimension else fixed):
                raise errors.InvalidFrequencies(
                    f"entry {number} of frequencies: the model cannot run {name!r} as {'×'.join(map(str, shape))}",
                    details={"entry": number},
                )
    yield from seen.items()


def _shapes(
    inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[Choice]], values: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs of a request, and of those that share all their open dimensions with them."""
    found: dict[str, tuple[int, ...]] = {}
    for spec in inputs:
        names = names_of(spec)
        if spec.name in shapes:
            given = zip(names, shapes[spec.name], strict=True)
            found[spec.name] = tuple(values_of(one)[0] if name is None else values[name] for name, one in given)
        elif any(names) and all(name is None or name in values for name in names):
            sizes = zip(names, spec.shape, strict=True)
            found[spec.name] = tuple(values[name] if name else int(size or 0) for name, size in sizes)
    return found
