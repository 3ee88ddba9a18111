"""Writing .npz files of constant arrays without numpy, which the client does not depend on.

Format: a zip of ``.npy`` members, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, version 1.0.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tunesmith import errors

_MAGIC = b"\x93NUMPY\x01\x00"
_ALIGNMENT = 64
_CHUNK_VALUES = 65536
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
    """One array an input, every element ``value``. Raises InvalidInput for element types that have no such value."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for spec in specs:
            if spec.dtype not in _TYPES:
                raise errors.InvalidInput(
                    f"input {spec.name!r} is of type {spec.dtype}, which cannot be filled",
                    hint="Give it with --inputs.",
                )
            shape = [int(str(size)) for size in spec.shape]
            name, letter = _TYPES[spec.dtype]
            count, element = math.prod(shape), struct.pack(f"<{letter}", value)
            with archive.open(f"{spec.name}.npy", "w", force_zip64=True) as member:
                member.write(_header(name, shape))
                for start in range(0, count, _CHUNK_VALUES):
                    member.write(element * min(_CHUNK_VALUES, count - start))


def _header(dtype: str, shape: Sequence[int]) -> bytes:
    sizes = "".join(f"{size}, " for size in shape)
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({sizes.rstrip() if shape else ''}), }}"
    unpadded = len(_MAGIC) + 2 + len(text) + 1
    padded = text + " " * (-unpadded % _ALIGNMENT) + "\n"
    return _MAGIC + struct.pack("<H", len(padded)) + padded.encode("latin1")
