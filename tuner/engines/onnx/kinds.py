"""Kinds of values that a model's inputs expect, inferred from dtype, shape, name and the operators that read them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import weights

IMAGE, BYTE_IMAGE, SIGNAL, STATE, UNIFORM = "image", "image 0..255", "signal", "state", "uniform"
IDS, TYPES, POSITIONS, MASK, BYTES = "ids", "token types", "positions", "mask", "bytes"
COMPARED = "compared values"
KINDS = (IMAGE, BYTE_IMAGE, SIGNAL, STATE, UNIFORM, IDS, TYPES, POSITIONS, MASK, BYTES, COMPARED)

_COLORS = (1, 3)
_LEAST_SIDE = 8
"""Minimum side of an image, in pixels."""
_LEAST_SAMPLES = 1000
"""Minimum length of a signal, such as sound."""
_BYTE_ROWS = (256, 257)
"""Rows of an embedding table for bytes; one extra row represents padding."""
_FEW_TYPES = 4
_PASSING = ("Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose")
"""Operators that leave values unchanged."""
_COMPARING = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_MOST_COMPARED = 16
"""Maximum number of constants that an input's comparisons use as its values."""
_RECURRENT = ("LSTM", "GRU", "RNN")
_INITIAL = (5, 6)
"""Input positions of the initial states of recurrent operators."""
_MASK, _TYPES, _POSITIONS = re.compile("mask"), re.compile("type|segment"), re.compile("position")
_BYTES = re.compile("byte")
_STATE = re.compile(r"state|hidden|cell|cache|past|memory|(^|[_.])[hc][_.]?(\d+|in|prev)?$")


@dataclass(frozen=True, kw_only=True)
class Kind:
    name: str
    """One of ``KINDS``."""
    limit: int | None = None
    """Exclusive upper bound of integers: the number of rows of the smallest table they index."""
    values: tuple[float, ...] = ()
    """Constants that the model compares the input with, such as sample rates, and last a number that is none of them.
    They decide which branches of the model run."""


def of_inputs(specs: Sequence[Json], graph: onnx.GraphProto | None = None) -> dict[str, Kind]:
    """Return the kind of every input; without a ``graph`` from the ``specs`` alone."""
    readers = _Readers(graph) if graph is not None else None
    return {spec["name"]: _kind(spec, readers) for spec in specs}


def _kind(spec: Json, readers: _Readers | None) -> Kind:
    name, shape = spec["name"].lower(), spec["shape"]
    try:
        dtype = np.dtype(spec["dtype"])
    except TypeError:
        return Kind(name=UNIFORM)
    if _MASK.search(name):
        return Kind(name=MASK)
    if dtype.kind in "iu" and dtype.itemsize == 1:
        return Kind(name=BYTE_IMAGE if dtype.kind == "u" and _is_image(shape) else BYTES)
    rows = readers.rows(spec["name"]) if readers and dtype.kind in "iu" else None
    # Pixels and samples are compared with thresholds, which say nothing about their range.
    is_number = dtype.kind in "iu" or (dtype.kind == "f" and math.prod(shape) == 1)
    if readers and is_number and rows is None and (constants := readers.compared_with(spec["name"], dtype)):
        return Kind(name=COMPARED, values=(*constants, 1.0 if 0.0 in constants else 0.0))
    if dtype.kind in "iu":
        return _of_integers(name, rows)
    if dtype.kind == "f":
        return Kind(name=_of_numbers(spec["name"], shape, readers))
    return Kind(name=UNIFORM)


def _of_integers(name: str, rows: int | None) -> Kind:
    if _TYPES.search(name) and (rows or 2) <= _FEW_TYPES:
        return Kind(name=TYPES, limit=rows)
    if _POSITIONS.search(name):
        return Kind(name=POSITIONS, limit=rows)
    if rows in _BYTE_ROWS or (_BYTES.search(name) and rows is None):
        return Kind(name=BYTES, limit=rows)
    return Kind(name=UNIFORM) if rows is None else Kind(name=IDS, limit=rows)


def _of_numbers(name: str, shape: Sequence[int], readers: _Readers | None) -> str:
    if readers and readers.starts_recurrence(name):
        return STATE
    if _is_image(shape):
        return BYTE_IMAGE if readers and readers.scales_bytes(name) else IMAGE
    if _STATE.search(name.lower()):
        return STATE
    return SIGNAL if max(shape, default=0) >= _LEAST_SAMPLES and _is_line(shape) else UNIFORM


def _is_image(shape: Sequence[int]) -> bool:
    if len(shape) != 4:
        return False
    return any(
        shape[channels] in _COLORS and min(shape[side] for side in sides) >= _LEAST_SIDE
        for channels, sides in ((1, (2, 3)), (3, (1, 2)))
    )


def _is_line(shape: Sequence[int]) -> bool:
    """Return whether all dimensions except the batch and one other are one."""
    return len([size for size in shape[1:] if size > 1]) <= 1


class _Readers:
    """Operators that read a graph's inputs, directly or through operators that leave values unchanged."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._nodes = graph.node
        self._constants: dict[str, Any] = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
                self._constants[node.output[0]] = node.attribute[0].t

    def rows(self, name: str) -> int | None:
        """Return the number of valid index values; None if the input does not index a table."""
        return min(self._limits(name), default=None)

    def compared_with(self, name: str, dtype: Any) -> tuple[float, ...]:
        """Return the constants that the input is compared with, in ascending order."""
        limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        found: set[float] = set()
        for node, other in self._with_constants(name):
            constant = self._values(other) if node.op_type in _COMPARING else None
            if constant is not None and constant.size <= _MOST_COMPARED:
                found.update(float(value) for value in constant.reshape(-1) if limits.min <= value <= limits.max)
        return tuple(sorted(found)[:_MOST_COMPARED])

    def starts_recurrence(self, name: str) -> bool:
        return any(node.op_type in _RECURRENT and place in _INITIAL for node, place in self._reading(name))

    def scales_bytes(self, name: str) -> bool:
        """Return whether the model itself rescales values from 0 to 255."""
        return any(_scales(node.op_type, self._values(other)) for node, other in self._with_constants(name))

    def _limits(self, name: str) -> Iterator[int]:
        for node, place in self._reading(name):
            if node.op_type == "Gather" and place == 1 and _axis(node) == 0:
                table = self._constants.get(node.input[0])
                if table is not None and len(table.dims) == 2:
                    yield int(table.dims[0])
            if node.op_type == "OneHot" and place == 0 and (depth := self._values(node.input[1])) is not None:
                yield int(depth.reshape(-1)[0])

    def _with_constants(self, name: str) -> Iterator[tuple[Any, str]]:
        for node, place in self._reading(name):
            if len(node.input) == 2:
                yield node, node.input[1 - place]

    def _values(self, name: str) -> Any:
        tensor = self._constants.get(name)
        return None if tensor is None else weights.array(tensor)

    def _reading(self, name: str) -> list[tuple[Any, int]]:
        """Return ``(node, input position)`` pairs. Nodes are topologically sorted, so one pass is enough."""
        known, found = {name}, []
        for node in self._nodes:
            places = [place for place, given in enumerate(node.input) if given in known]
            if places and node.op_type in _PASSING:
                known.update(node.output)
            found += [(node, place) for place in places]
        return found


def _axis(node: Any) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == "axis"), 0)


def _scales(operator: str, constant: Any) -> bool:
    if constant is None or constant.dtype.kind != "f" or not constant.size:
        return False
    mean = float(np.abs(constant).mean())
    if operator == "Div":
        return mean > 25
    if operator == "Mul":
        return 0 < mean < 0.04
    return operator == "Sub" and mean > 25
