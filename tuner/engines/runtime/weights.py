"""Weights of large models, which stay in files: a model in memory refers to them, so that it and its copies are small.

ONNX Runtime maps such files into its memory, and TVM's importers read one weight at a time. The references are those of
ONNX for external data, with locations from the root folder on. References that an uploaded file brings along are
refused when it is read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from tuner.engines.protocol.serving import EngineFailure

ROOT = "/"
"""Folder to which locations are relative."""
LARGE = 2**20
"""Minimum bytes of a weight that stays in its file."""
_LEAST_BYTES = 64 * 2**20
"""Minimum bytes of a file whose weights stay in it."""
MOST_BYTES = 2**31 - 1
"""Maximum bytes of a protobuf message, as which models are passed on."""
_ALIGNMENT = 64
_CHUNK_BYTES = 16 * 2**20
_MOST_FIELDS = 1_000_000
"""Files with more are read by protobuf alone, which is faster with small fields."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the data of a weight is."""

    path: Path
    offset: int
    size: int
    """Bytes."""


def is_outside(tensor: TensorProto) -> bool:
    """Return whether the data of a tensor is in a file."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def are_outside(model: ModelProto) -> bool:
    """Return whether any weights of a model are in files."""
    return any(map(is_outside, model.graph.initializer))


def place(tensor: TensorProto) -> Place:
    """Return where the data of a tensor is that ``is_outside``."""
    told = {entry.key: entry.value for entry in tensor.external_data}
    return Place(path=Path(ROOT, told["location"]), offset=int(told.get("offset", 0)), size=int(told["length"]))


def refer(tensor: TensorProto, where: Place) -> None:
    """Let a tensor refer to its data in a file."""
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    location = str(where.path.absolute().relative_to(ROOT))
    for key, value in (("location", location), ("offset", str(where.offset)), ("length", str(where.size))):
        tensor.external_data.add(key=key, value=value)


def array(tensor: TensorProto) -> Any:
    """Return the values of a tensor, which cannot be changed; those in a file are mapped, not read."""
    if not is_outside(tensor):
        return numpy_helper.to_array(tensor)
    where, dtype = place(tensor), np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    if dtype.isbuiltin == 1 and dtype.itemsize * int(np.prod(tensor.dims)) == where.size:
        return np.memmap(where.path, dtype, "r", where.offset, tuple(tensor.dims)).view(np.ndarray)
    inside = TensorProto()
    inside.CopyFrom(tensor)
    _embed(inside)
    return numpy_helper.to_array(inside)


def embed(model: ModelProto) -> None:
    """Read all weights into the model."""
    for tensor in filter(is_outside, model.graph.initializer):
        _embed(tensor)


def _embed(tensor: TensorProto) -> None:
    where = place(tensor)
    with where.path.open("rb") as file:
        file.seek(where.offset)
        content = file.read(where.size)
    _cut_off(tensor)
    tensor.raw_data = content


def _cut_off(tensor: TensorProto) -> None:
    tensor.ClearField("data_location")
    del tensor.external_data[:]


class Store:
    """A new file for weights that are computed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def put(self, tensor: TensorProto, values: Any) -> None:
        """Store the values of a tensor, which then refers to them."""
        with self._path.open("ab") as file:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            offset = file.tell()
            np.ascontiguousarray(values).tofile(file)
            refer(tensor, Place(path=self._path, offset=offset, size=file.tell() - offset))


def checkable(model: ModelProto) -> ModelProto:
    """Return a model with its large weights as inputs, for ``onnx.checker``, which copies all others twice."""
    large = {tensor.name for tensor in model.graph.initializer if _is_large(tensor)}
    if not large:
        return model
    graph = GraphProto()
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            getattr(graph, field.name).extend(value) if field.is_repeated else setattr(graph, field.name, value)
    fed = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in large:
            graph.initializer.append(tensor)
        elif tensor.name not in fed:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return ModelProto(
        ir_version=model.ir_version, graph=graph, opset_import=model.opset_import, functions=model.functions,
        training_info=model.training_info,
    )  # fmt: skip


def _is_large(tensor: TensorProto) -> bool:
    return is_outside(tensor) or len(tensor.raw_data) >= LARGE


def parse(path: Path) -> tuple[ModelProto, list[tuple[TensorProto, Place]]]:
    """Parse an ONNX file without its large weights, and return these with their places, for ``refer``.

    Raises ``google.protobuf.message.DecodeError``.
    """
    content, places = _without_weights(path)
    model = onnx.load_model_from_string(content)
    found = [(number, Place(path=path, offset=start, size=end - start)) for number, start, end in places]
    return model, [(model.graph.initializer[number], where) for number, where in found]


def read(path: Path) -> ModelProto:
    """Parse a prepared file; the model refers to its large weights. Raises as ``parse``."""
    model, large = parse(path)
    for tensor, where in large:
        refer(tensor, where)
    return model


def write(model: ModelProto, path: Path) -> None:
    """Write a model with all of its weights as one file. Raises EngineFailure ``invalid_model``: ``too_large``."""
    if not are_outside(model):
        path.write_bytes(model.SerializeToString(deterministic=True))
        return
    shell, graph = ModelProto(), GraphProto()
    shell.CopyFrom(model)
    shell.ClearField("graph")
    graph.CopyFrom(model.graph)
    graph.ClearField("initializer")
    start, weights = graph.SerializeToString(deterministic=True), [_Weight(each) for each in model.graph.initializer]
    head = shell.SerializeToString(deterministic=True)
    head += _framed(_GRAPH, len(start) + sum(len(each.frame) + each.size for each in weights))
    size = len(head) + len(start) + sum(len(each.frame) + each.size for each in weights)
    if size > MOST_BYTES:
        message = f"the model has {size} bytes with static shapes; the limit of ONNX files is {MOST_BYTES}"
        raise EngineFailure("invalid_model", message, details={"reason": "too_large"})
    with path.open("wb") as file:
        file.write(head + start)
        for weight in weights:
            weight.write(file)


class _Weight:
    """A weight as part of a serialized graph."""

    def __init__(self, tensor: TensorProto) -> None:
        inside = TensorProto()
        inside.CopyFrom(tensor)
        self._place = place(tensor) if is_outside(tensor) else None
        if self._place:
            _cut_off(inside)
        content = inside.SerializeToString(deterministic=True)
        self._start = content + (_framed(_RAW, self._place.size) if self._place else b"")
        self.size = len(self._start) + (self._place.size if self._place else 0)
        self.frame = _framed(_INITIALIZER, self.size)

    def write(self, file: BinaryIO) -> None:
        file.write(self.frame + self._start)
        for chunk in _chunks(self._place) if self._place else ():
            file.write(chunk)


def _chunks(where: Place) -> Iterator[bytes]:
    with where.path.open("rb") as file:
        file.seek(where.offset)
        for start in range(0, where.size, _CHUNK_BYTES):
            yield file.read(min(_CHUNK_BYTES, where.size - start))


# The wire format of protobuf: a tag, which is the number of a field and its kind, then perhaps its length, its content.
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
_GRAPH = ModelProto.GRAPH_FIELD_NUMBER << 3 | _BYTES
_INITIALIZER = GraphProto.INITIALIZER_FIELD_NUMBER << 3 | _BYTES
_RAW = TensorProto.RAW_DATA_FIELD_NUMBER << 3 | _BYTES


class _Field(NamedTuple):
    tag: int
    start: int
    content: int
    end: int


def _without_weights(path: Path) -> tuple[bytes, list[tuple[int, int, int]]]:
    """Return a file's content, without large weights, and the number, start and end of each of these."""
    if path.stat().st_size < _LEAST_BYTES:
        return path.read_bytes(), []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _cut(data)
        except ValueError:
            # Protobuf says whether it is one of its messages.
            return data[:], []


def _cut(data: mmap.mmap) -> tuple[bytes, list[tuple[int, int, int]]]:
    """Raises ValueError for anything but a message with one graph."""
    [graph] = [field for field in _fields(data, 0, len(data)) if field.tag == _GRAPH]
    parts: list[bytes] = []
    cut: list[tuple[int, int, int]] = []
    number = 0
    for field in _fields(data, graph.content, graph.end):
        raw = _raw_data(data, field) if field.tag == _INITIALIZER else None
        if raw:
            tensor = data[field.content : raw.start] + data[raw.end : field.end]
            parts += [_framed(_INITIALIZER, len(tensor)), tensor]
            cut.append((number, raw.content, raw.end))
        else:
            parts.append(data[field.start : field.end])
        number += field.tag == _INITIALIZER
    inside = b"".join(parts)
    return b"".join((data[: graph.start], _framed(_GRAPH, len(inside)), inside, data[graph.end :])), cut


def _raw_data(data: mmap.mmap, tensor: _Field) -> _Field | None:
    """Return the field with a tensor's data if there is one and it is large."""
    if tensor.end - tensor.content < LARGE:
        return None
    found = [field for field in _fields(data, tensor.content, tensor.end) if field.tag == _RAW]
    return found[0] if len(found) == 1 and found[0].end - found[0].content >= LARGE else None


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[_Field]:
    """Yield the fields of a message."""
    place = start
    for _ in range(_MOST_FIELDS):
        if place == end:
            return
        tag, content = _number(data, place)
        kind = tag & 7
        if kind == _BYTES:
            length, content = _number(data, content)
            after = content + length
        elif kind == _VARINT:
            _, after = _number(data, content)
        elif kind in _FIXED:
            after = content + _FIXED[kind]
        else:
            raise ValueError("a group")
        if after > end:
            raise ValueError("truncated")
        yield _Field(tag, place, content, after)
        place = after
    raise ValueError("too many fields")


def _number(data: mmap.mmap, start: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, and where it ends."""
    number = 0
    for count, byte in enumerate(data[start : start + 10]):
        number |= (byte & 127) << 7 * count
        if byte < 128:
            return number, start + count + 1
    raise ValueError("no number")


def _framed(tag: int, length: int) -> bytes:
    """Return what precedes the content of a field."""
    return _bytes_of(tag) + _bytes_of(length)


def _bytes_of(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def adopt(tensors: Iterable[TensorProto], folder: Path) -> None:
    """Let tensors whose locations are relative to a folder, as ONNX Runtime writes them, refer to the files there."""
    for tensor in filter(is_outside, tensors):
        told = place(tensor)
        refer(tensor, Place(path=folder / os.path.relpath(told.path, ROOT), offset=told.offset, size=told.size))
