"""Symbols of 64-bit little-endian ELF object files."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_SYMBOL_TABLE = 2
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True, kw_only=True)
class Symbol:
    is_defined: bool
    offset: int
    """Of its content in the file; meaningless for undefined symbols."""
    bytes: int


def content(path: Path, name: str) -> bytes:
    """Return the bytes of a defined symbol. Raises KeyError, and ValueError as ``symbols`` does."""
    found = symbols(path)[name]
    return path.read_bytes()[found.offset : found.offset + found.bytes]


def symbols(path: Path) -> dict[str, Symbol]:
    """Return the named symbols of an object file. Raises ValueError for other files."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"not a 64-bit little-endian ELF file: {path}")
    header = _HEADER.unpack_from(data)
    start, size, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(data, start + place * size) for place in range(count)]
    found = {}
    for section in sections:
        _, kind, _, _, offset, length, link, *_ = section
        if kind != _SYMBOL_TABLE:
            continue
        names = sections[link][4]
        for place in range(offset, offset + length, _SYMBOL.size):
            name, _, _, index, value, extent = _SYMBOL.unpack_from(data, place)
            text = data[names + name : data.index(b"\0", names + name)].decode(errors="replace")
            if text:
                base = sections[index][4] if index < count else 0
                found[text] = Symbol(is_defined=index != 0, offset=base + value, bytes=extent)
    return found
