"""Models whose weights are in files of their own, uploaded as one tar archive."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import onnx
from google.protobuf.message import DecodeError

from tuner.engines.onnx import vetting
from tuner.engines.onnx.vetting import refuse, shown
from tuner.engines.runtime import weights
from tunesmith import archives
from tunesmith.archives import Member

_MAGIC, _MAGIC_OFFSET = b"ustar", 257
_MOST_HEADERS = 10_000
"""Exporters write a file for each weight."""


def is_archive(file: BinaryIO) -> bool:
    """Return whether a file starts as tar archives do."""
    file.seek(_MAGIC_OFFSET)
    return file.read(len(_MAGIC)) == _MAGIC


def read(file: BinaryIO, path: Path) -> onnx.ModelProto:
    """Read an archive of one ``.onnx`` file and its weights, and return the model with all small weights in it.

    It refers to large ones in the archive, a file of this ``path``, as ``weights`` says. Nothing is unpacked: names in
    the archive and in the model are only compared. Raises EngineFailure
    ``invalid_model``: ``archive``, ``external_data``, ``not_onnx``, ``tensor_size``, or as ``vetting.walk``.
    """
    try:
        files = _files(archives.members(file, most=_MOST_HEADERS))
    except archives.InvalidArchive as error:
        raise refuse("archive", f"the archive cannot be read: {error}") from error
    found = sorted(name for name in files if name.endswith(".onnx"))
    if len(found) != 1:
        names = f": {', '.join(map(shown, found[:5]))}" if found else ""
        raise refuse("archive", f"the archive has {len(found)} .onnx files{names}; it must have one")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(_content(file, files[found[0]], 0, files[found[0]].size))
    except DecodeError as error:
        raise refuse("not_onnx", f"{shown(found[0])} in the archive is not an ONNX file, or truncated") from error
    _load(model, file, path, files, posixpath.dirname(found[0]))
    return model


def _files(members: Iterable[Member]) -> dict[str, Member]:
    files: dict[str, Member] = {}
    for member in members:
        name = _path(member.name)
        if name is None:
            raise refuse("archive", f"the archive has the path {shown(member.name)}, which leads out of it")
        if member.is_folder:
            continue
        if name in files:
            raise refuse("archive", f"the archive has two files {shown(name)}")
        files[name] = member
    return files


def _path(*parts: str) -> str | None:
    """Return a path inside of the archive, or None if it leads out."""
    path = posixpath.normpath(posixpath.join(*parts))
    return None if path.startswith(("/", "../")) or path == ".." or "\0" in path else path


def _load(model: onnx.ModelProto, file: BinaryIO, path: Path, files: Mapping[str, Member], folder: str) -> None:
    tensors = vetting.walk(model).tensors
    places = {number: _place(each, files, folder) for number, each in enumerate(tensors) if weights.is_outside(each)}
    total = model.ByteSize() + sum(size for _, _, size in places.values())
    if total > weights.MOST_BYTES:
        message = f"the model has {total} bytes with its weights; the limit of ONNX files is {weights.MOST_BYTES}"
        raise refuse("too_large", message)
    for number, (member, offset, size) in places.items():
        # The graph's own come first; those of attributes and branches are always inside.
        if size >= weights.LARGE and number < len(model.graph.initializer):
            weights.refer(tensors[number], weights.Place(path=path, offset=member.start + offset, size=size))
        else:
            del tensors[number].external_data[:]
            tensors[number].ClearField("data_location")
            tensors[number].raw_data = _content(file, member, offset, size)


def _place(tensor: Any, files: Mapping[str, Member], folder: str) -> tuple[Member, int, int]:
    """Return where the data of a tensor is: the file, the offset and the number of bytes."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = str(entries.get("location", ""))
    name = _path(folder, location)
    member = files.get(name) if name else None
    if member is None:
        where = f"{shown(location)}, which is not in the archive"
        raise refuse("external_data", f"the weights of {shown(tensor.name)} are in {where}")
    size = vetting.data_bytes(tensor)
    offset, length = (_number(entries.get(key, default)) for key, default in (("offset", "0"), ("length", str(size))))
    if offset is None or length != size or offset + size > member.size:
        told = f"{entries.get('length', size)} bytes at {entries.get('offset', 0)} of {member.size}"
        raise refuse(
            "external_data", f"the weights of {shown(tensor.name)} need {size} bytes; {shown(location)}: {told}"
        )
    return member, offset, size


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _content(file: BinaryIO, member: Member, offset: int, size: int) -> bytes:
    file.seek(member.start + offset)
    return file.read(size)
