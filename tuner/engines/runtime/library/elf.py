"""Symbols of 64-bit little-endian ELF object files."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_RELOCATABLE, _X86_64 = 1, 62
_PROGRAM_BITS, _SYMBOL_TABLE, _STRING_TABLE = 1, 2, 3
_ALLOCATED, _LARGE_SECTION = 0x2, 0x10000000
_GLOBAL_OBJECT = 0x11
_ALIGNMENT = 64
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True, kw_only=True)
class Symbol:
    is_defined: bool
    offset: int
    """Of its content in the file; meaningless for undefined symbols."""
    bytes: int


def content(path: Path, name: str) -> memoryview:
    """Return the bytes of a defined symbol, mapped from the file, which may be deleted meanwhile.

    Raises KeyError, and ValueError as ``symbols`` does.
    """
    found = symbols(path)[name]
    return memoryview(_mapped(path))[found.offset : found.offset + found.bytes]


def _mapped(path: Path) -> mmap.mmap:
    """Raises ValueError for an empty file."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def symbols(path: Path) -> dict[str, Symbol]:
    """Return the named symbols of an object file. Raises ValueError for other files."""
    data = _mapped(path)
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
            text = data[names + name : data.find(b"\0", names + name)].decode(errors="replace")
            if text:
                base = sections[index][4] if index < count else 0
                found[text] = Symbol(is_defined=index != 0, offset=base + value, bytes=extent)
    return found


def write(path: Path, name: str, content: memoryview, like: Path) -> None:
    """Write an object file that defines one symbol with this content, for the machine of another object file.

    It may have gigabytes, which assemblers and LLVM copy several times.
    """
    with like.open("rb") as file:
        header = _HEADER.unpack(file.read(_HEADER.size))
    is_x86 = header[2] == _X86_64
    size = content.nbytes
    section, texts = (b".lrodata" if is_x86 else b".rodata"), b""
    names = {}
    for text in (b"", section, b".symtab", b".strtab", b".note.GNU-stack", name.encode()):
        names[text] = len(texts)
        texts += text + b"\0"
    texts += bytes(-len(texts) % 8)
    start = _HEADER.size
    table = start + size + -size % _ALIGNMENT
    symbols = bytes(_SYMBOL.size) + _SYMBOL.pack(names[name.encode()], _GLOBAL_OBJECT, 0, 1, 0, size)
    text_table = table + len(symbols)
    flags = _ALLOCATED | (_LARGE_SECTION if is_x86 else 0)
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (names[section], _PROGRAM_BITS, flags, 0, start, size, 0, 0, _ALIGNMENT, 0),
        (names[b".symtab"], _SYMBOL_TABLE, 0, 0, table, len(symbols), 3, 1, 8, _SYMBOL.size),
        (names[b".strtab"], _STRING_TABLE, 0, 0, text_table, len(texts), 0, 0, 1, 0),
        (names[b".note.GNU-stack"], _PROGRAM_BITS, 0, 0, text_table, 0, 0, 0, 1, 0),
    ]
    end = text_table + len(texts)
    with path.open("wb") as file:
        file.write(
            _HEADER.pack(header[0], _RELOCATABLE, header[2], 1, 0, 0, end, header[7], _HEADER.size, 0, 0,
                         _SECTION.size, len(sections), 3)
        )  # fmt: skip
        file.write(content)
        file.write(bytes(-size % _ALIGNMENT) + symbols + texts + b"".join(_SECTION.pack(*each) for each in sections))
