"""Read and write .npz files without numpy, which the client does not depend on, and label classes of outputs.

Format: a zip of ``.npy`` members, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, version 1.0.
"""

from __future__ import annotations

import ast
import json
import math
import shutil
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from tunesmith import errors

_MAGIC = b"\x93NUMPY\x01\x00"
_ALIGNMENT = 64
_CHUNK_VALUES = 65536
_LONGEST_HEADER = 10_000
"""Bytes, as in numpy."""
_DAMAGES = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, SyntaxError, ArithmeticError, MemoryError),
    *(RuntimeError, struct.error, zipfile.BadZipFile, zlib.error),
)
"""Errors of zipfile, zlib, struct and ast for files that are no arrays."""
# numpy's type string and struct's letter
_TYPES = {
    "float16": ("<f2", "e"),
    "float32": ("<f4", "f"),
    "float64": ("<f8", "d"),
    "int8": ("|i1", "b"),
    "int16": ("<i2", "h"),
    "int32": ("<i4", "i"),
    "int64": ("<i8", "q"),
    "uint8": ("|u1", "B"),
    "uint16": ("<u2", "H"),
    "uint32": ("<u4", "I"),
    "uint64": ("<u8", "Q"),
    "bool": ("|b1", "?"),
}


class Spec(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> Sequence[object]: ...


def write_constant(path: Path, specs: Sequence[Spec], value: int) -> None:
    """Write one array per input with every element ``value``. Raises InvalidInput for unsupported element types."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for spec in specs:
            if spec.dtype not in _TYPES:
                raise errors.InvalidInput(
                    f"input {spec.name!r} has type {spec.dtype}, which --fill-mode does not support",
                    hint="Provide it with --inputs.",
                )
            shape = [int(str(size)) for size in spec.shape]
            name, letter = _TYPES[spec.dtype]
            count, element = math.prod(shape), struct.pack(f"<{letter}", value)
            with archive.open(f"{spec.name}.npy", "w", force_zip64=True) as member:
                member.write(_header(name, shape))
                for start in range(0, count, _CHUNK_VALUES):
                    member.write(element * min(_CHUNK_VALUES, count - start))


@dataclass(frozen=True, kw_only=True)
class Array:
    name: str
    dtype: str
    shape: tuple[int, ...]
    values: tuple[float, ...]
    """In C order; integers and booleans keep their types."""


def read(path: Path, name: str) -> Array:
    """Read one array of an .npz file. Raises InvalidInput for damage and for types that Python lacks, such as bfloat16.

    The code of a bundle can write anything to the file.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
            descr, fortran, shape = _read_header(cast(BinaryIO, member))
            known = {kind: (dtype, letter) for dtype, (kind, letter) in _TYPES.items()}
            if descr not in known or (fortran and len(shape) > 1):
                raise errors.InvalidInput(f"output {name!r} has type {descr}, whose values cannot be shown")
            dtype, letter = known[descr]
            values = struct.unpack(f"<{math.prod(shape)}{letter}", member.read())
    except _DAMAGES as error:
        raise _damaged(f"output {name!r}", error) from error
    return Array(name=name, dtype=dtype, shape=shape, values=values)


def copy(source: Path, names: Sequence[str], target: Path) -> None:
    """Copy the arrays ``names`` from one .npz file to another. Raises InvalidInput also if ``target`` cannot be
    written."""
    try:
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
            for name in names:
                with old.open(f"{name}.npy") as member, new.open(f"{name}.npy", "w", force_zip64=True) as copied:
                    shutil.copyfileobj(member, copied)
    except OSError as error:
        raise errors.InvalidInput(f"cannot write {target}: {error.strerror}", code="unwritable_file") from error
    except _DAMAGES as error:
        raise _damaged("outputs", error) from error


def _damaged(what: str, error: Exception) -> errors.InvalidInput:
    return errors.InvalidInput(
        f"the bundle wrote no readable {what}: {type(error).__name__}",
        code="invalid_bundle",
        hint="Download the artifact again; if that does not help, tune the model again.",
    )


def _read_header(member: BinaryIO) -> tuple[str, bool, tuple[int, ...]]:
    """Return type string, Fortran order and shape; reads any version of the format."""
    start = member.read(len(_MAGIC))
    size = "<H" if start[6:7] == b"\x01" else "<I"
    (length,) = struct.unpack(size, member.read(struct.calcsize(size)))
    if length > _LONGEST_HEADER:
        # Python can crash while it parses a longer one.
        raise ValueError(f"a header of {length} bytes")
    header = ast.literal_eval(member.read(length).decode("latin1"))
    return header["descr"], header["fortran_order"], tuple(header["shape"])


def _header(dtype: str, shape: Sequence[int]) -> bytes:
    sizes = "".join(f"{size}, " for size in shape)
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({sizes.rstrip() if shape else ''}), }}"
    unpadded = len(_MAGIC) + 2 + len(text) + 1
    padded = text + " " * (-unpadded % _ALIGNMENT) + "\n"
    return _MAGIC + struct.pack("<H", len(padded)) + padded.encode("latin1")


@dataclass(frozen=True, kw_only=True)
class Answer:
    index: int
    value: float
    label: str | None


def labels(path: Path) -> list[str]:
    """Read class names: one per line, a JSON list, or a JSON object by class number. Raises InvalidInput."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise errors.unreadable(path) from error
    except UnicodeDecodeError as error:
        raise _no_labels(path, "it is not UTF-8 text") from error
    if text.lstrip()[:1] in ("[", "{"):
        return _of_json(path, text)
    lines = text.rstrip().splitlines()
    if not lines:
        raise _no_labels(path, "it is empty")
    return [line.strip() for line in lines]


def top(array: Array, most: int, names: Sequence[str] | None) -> list[list[Answer]]:
    """Return the largest values of each row (last axis). Raises InvalidInput if ``names`` has another length."""
    classes = array.shape[-1] if array.shape else 1
    if names is not None and len(names) != classes:
        raise errors.InvalidInput(
            f"there are {len(names)} labels, but output {array.name!r} has {classes} classes",
            code="invalid_labels",
            hint="Label every class, in order, or choose another output with --dump-outputs NAME.",
        )
    rows = [array.values[start : start + classes] for start in range(0, len(array.values), max(1, classes))]
    return [_largest(row, most, names) for row in rows]


def _largest(row: Sequence[float], most: int, names: Sequence[str] | None) -> list[Answer]:
    # NaN sorts last; among equal values the first class comes first, as with numpy.argmax.
    order = sorted(range(len(row)), key=lambda index: (math.isnan(row[index]), -row[index]))
    return [Answer(index=index, value=row[index], label=names[index] if names else None) for index in order[:most]]


def _of_json(path: Path, text: str) -> list[str]:
    try:
        document: Any = json.loads(text)
        if isinstance(document, dict):
            numbered = {int(number): name for number, name in document.items()}
            document = [numbered[number] for number in range(len(numbered))]
    except (ValueError, KeyError) as error:
        raise _no_labels(path, "it is neither a JSON list of names nor a JSON object from 0, 1, … to names") from error
    # ImageNet's class index holds [wordnet id, name].
    return [str(name[-1]) if isinstance(name, list) and name else str(name) for name in document]


def _no_labels(path: Path, reason: str) -> errors.InvalidInput:
    hint = "Write one name per line, in the order of the classes."
    return errors.InvalidInput(f"{path} is not a file of labels: {reason}", code="invalid_labels", hint=hint)
