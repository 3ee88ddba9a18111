"""ONNX models by hand: the tests' interpreter has no ``onnx``, and hostile files are bound by no library's rules.

Field numbers are those of ``onnx.proto3``; https://protobuf.dev/programming-guides/encoding describes the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

FLOAT, INT8, INT64, STRING, BOOL = 1, 3, 7, 8, 9
GRAPH, INTS, INT, TENSOR = 5, 7, 2, 4
"""Kinds of attributes."""

Field = tuple[int, "int | bytes | str"]
Dimensions = Sequence[int | str | None]
"""A size, a symbol, or None for an unnamed dynamic dimension."""


def message(*fields: Field) -> bytes:
    return b"".join(_field(number, value) for number, value in fields)


def _field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (2**64 - 1))
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], *attributes: bytes, domain: str = "") -> bytes:
    ends: list[Field] = [*((1, name) for name in inputs), *((2, name) for name in outputs)]
    about: list[Field] = [(4, operator), *((5, attribute) for attribute in attributes)]
    return message(*ends, *about, *([(7, domain)] if domain else []))


def subgraph(name: str, graph: bytes) -> bytes:
    return message((1, name), (6, graph), (20, GRAPH))


def value_of(tensor: bytes) -> bytes:
    """The attribute of a ``Constant``."""
    return message((1, "value"), (5, tensor), (20, TENSOR))


def integer(name: str, value: int) -> bytes:
    return message((1, name), (3, value), (20, INT))


def integers(name: str, values: Sequence[int]) -> bytes:
    return message((1, name), *((8, value) for value in values), (20, INTS))


def tensor(name: str, shape: Sequence[int], kind: int, content: bytes) -> bytes:
    return message(*((1, size) for size in shape), (2, kind), (8, name), (9, content))


def whole(name: str, *numbers: int) -> bytes:
    """A tensor of one dimension."""
    return tensor(name, [len(numbers)], INT64, struct.pack(f"<{len(numbers)}q", *numbers))


def floats(name: str, *shape: int) -> bytes:
    count = 1
    for size in shape:
        count *= size
    return tensor(name, shape, FLOAT, struct.pack("<f", 0.5) * count)


def truth(name: str) -> bytes:
    return tensor(name, [], BOOL, bytes([True]))


def end(name: str, shape: Dimensions | None, kind: int = FLOAT) -> bytes:
    """An input or output; None leaves its rank open."""
    described: list[Field] = [(1, kind)]
    if shape is not None:
        described.append((2, message(*((1, _dimension(size)) for size in shape))))
    return message((1, name), (2, message((1, message(*described)))))


def _dimension(size: int | str | None) -> bytes:
    if size is None:
        return b""
    return message((2, size) if isinstance(size, str) else (1, size))


def graph(
    nodes: Sequence[bytes], inputs: Sequence[bytes], outputs: Sequence[bytes], tensors: Sequence[bytes] = ()
) -> bytes:
    parts: list[Field] = [*((1, each) for each in nodes), (2, "graph"), *((5, each) for each in tensors)]
    return message(*parts, *((11, each) for each in inputs), *((12, each) for each in outputs))


def model(content: bytes, *more: Field, ir: int = 8, opset: int = 13) -> bytes:
    return message((1, ir), (7, content), (8, message((2, opset))), *more)


def simple(
    nodes: Sequence[bytes], tensors: Sequence[bytes] = (), *, shape: Sequence[int | str] | None = (4,), opset: int = 13
) -> bytes:
    """From ``x`` to ``y``, both of this shape."""
    return model(graph(nodes, [end("x", shape)], [end("y", shape)], tensors), opset=opset)
