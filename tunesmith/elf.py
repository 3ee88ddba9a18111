"""The dynamic section of shared libraries: what the dynamic loader goes by, for 64-bit little-endian ELF files.

Section headers are not read: the loader ignores them, and a stranger may have written anything there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_VERSION_FILE = struct.Struct("<HHIII")
_VERSION = struct.Struct("<IHHII")
_LOAD, _DYNAMIC_SEGMENT, _STACK = 1, 2, 0x6474E551
_EXECUTABLE, _WRITABLE = 1, 2
_NEEDED, _PLT_BYTES, _HASH, _STRINGS, _SYMBOLS, _RELOCATIONS, _RELOCATION_BYTES = 1, 2, 4, 5, 6, 7, 8
_RPATH, _PLT_RELOCATIONS, _TEXTREL, _FLAGS, _RUNPATH, _GNU_HASH = 15, 23, 22, 30, 29, 0x6FFFFEF5
_VERSIONS, _VERSION_FILES = 0x6FFFFFFE, 0x6FFFFFFF
_TEXTREL_FLAG = 4
_HIDDEN = (1, 2)
"""Visibilities of symbols that other libraries cannot use."""
_SHARED_OBJECT = 3
_MOST_SYMBOLS = 100_000
_MOST_VERSIONS = 1000


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    needed: list[str]
    imports: frozenset[str]
    exports: frozenset[str]
    versions: frozenset[str]
    """Versions of imported symbols, such as ``GLIBC_2.17``."""
    search_path: str
    """RPATH or RUNPATH; empty without."""
    writable_code: str
    """What makes memory both writable and executable; empty for nothing."""


def read(data: bytes) -> Dynamic:
    """Read a shared library. Raises ValueError for other files and damaged ones."""
    try:
        return _Reader(data).read()
    except (struct.error, OverflowError) as error:
        raise ValueError(f"it is damaged: {error}") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        self._data = data
        header = _HEADER.unpack_from(data)
        if header[1] != _SHARED_OBJECT:
            raise ValueError("an ELF file of another kind")
        start, size, count = header[5], header[9], header[10]
        self._segments = [_SEGMENT.unpack_from(data, start + place * size) for place in range(count)]
        self._tags: dict[int, int] = {}
        self._many: list[tuple[int, int]] = []

    def read(self) -> Dynamic:
        for kind, _, offset, _, _, size, *_ in self._segments:
            if kind == _DYNAMIC_SEGMENT:
                self._many = list(self._entries(offset, size))
        if not self._many:
            raise ValueError("it has no dynamic section")
        self._tags = dict(self._many)
        imports, exports = self._symbols()
        paths = [self._string(value) for tag, value in self._many if tag in (_RPATH, _RUNPATH)]
        return Dynamic(
            needed=[self._string(value) for tag, value in self._many if tag == _NEEDED],
            imports=frozenset(imports),
            exports=frozenset(exports),
            versions=frozenset(self._versions()),
            search_path=":".join(paths),
            writable_code=self._writable_code(),
        )

    def _entries(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        for place in range(offset, offset + size - _DYNAMIC.size + 1, _DYNAMIC.size):
            tag, value = _DYNAMIC.unpack_from(self._data, place)
            if tag == 0:
                return
            yield tag, value

    def _writable_code(self) -> str:
        for kind, flags, *_ in self._segments:
            if kind == _LOAD and flags & _WRITABLE and flags & _EXECUTABLE:
                return "code that it can change"
            if kind == _STACK and flags & _EXECUTABLE:
                return "an executable stack"
        if _TEXTREL in self._tags or self._tags.get(_FLAGS, 0) & _TEXTREL_FLAG:
            return "code that the loader changes"
        return ""

    def _symbols(self) -> tuple[set[str], set[str]]:
        imports: set[str] = set()
        exports: set[str] = set()
        count = max(self._in_hash(), self._in_gnu_hash(), *self._related(), 0)
        if count > _MOST_SYMBOLS:
            raise ValueError(f"it has more than {_MOST_SYMBOLS} symbols")
        start = self._offset(self._tags.get(_SYMBOLS, 0)) if count else 0
        for number in range(1, count):
            name, kind, other, section, _, _ = _SYMBOL.unpack_from(self._data, start + number * _SYMBOL.size)
            text = self._string(name)
            if not text:
                continue
            if section == 0:
                imports.add(text)
            elif kind >> 4 and other & 3 not in _HIDDEN:
                exports.add(text)
        return imports, exports

    def _versions(self) -> Iterator[str]:
        if _VERSIONS not in self._tags:
            return
        place, seen = self._offset(self._tags[_VERSIONS]), 0
        for _ in range(min(self._tags.get(_VERSION_FILES, 0), _MOST_VERSIONS)):
            _, count, _, first, following = _VERSION_FILE.unpack_from(self._data, place)
            at = place + first
            for _ in range(count):
                if (seen := seen + 1) > _MOST_VERSIONS:
                    raise ValueError(f"it needs more than {_MOST_VERSIONS} versions of symbols")
                *_, name, distance = _VERSION.unpack_from(self._data, at)
                yield self._string(name)
                at += distance
            place += following

    def _related(self) -> Iterator[int]:
        """Return numbers above those of the symbols that relocations name."""
        yield 0
        for at, size in ((_RELOCATIONS, _RELOCATION_BYTES), (_PLT_RELOCATIONS, _PLT_BYTES)):
            if at not in self._tags:
                continue
            start, length = self._offset(self._tags[at]), self._tags.get(size, 0)
            if length > len(self._data):
                raise ValueError("its relocations exceed the file")
            for place in range(start, start + length, _RELOCATION.size):
                yield (_RELOCATION.unpack_from(self._data, place)[1] >> 32) + 1

    def _in_hash(self) -> int:
        if _HASH not in self._tags:
            return 0
        return int(struct.unpack_from("<II", self._data, self._offset(self._tags[_HASH]))[1])

    def _in_gnu_hash(self) -> int:
        if _GNU_HASH not in self._tags:
            return 0
        start = self._offset(self._tags[_GNU_HASH])
        buckets, first, words, _ = struct.unpack_from("<IIII", self._data, start)
        if buckets > _MOST_SYMBOLS:
            raise ValueError(f"it has more than {_MOST_SYMBOLS} symbols")
        table = start + 16 + words * 8
        last = max(struct.unpack_from(f"<{buckets}I", self._data, table), default=0)
        if last < first:
            return int(first)
        chain = table + buckets * 4
        while not struct.unpack_from("<I", self._data, chain + (last - first) * 4)[0] & 1:
            last += 1
        return int(last) + 1

    def _offset(self, address: int) -> int:
        """Return where the loader's memory at an address comes from."""
        for kind, _, offset, start, _, size, *_ in self._segments:
            if kind == _LOAD and start <= address < start + size:
                return int(address - start + offset)
        raise ValueError(f"nothing is loaded at address {address:#x}")

    def _string(self, place: int) -> str:
        start = self._offset(self._tags.get(_STRINGS, 0)) + place
        return self._data[start : self._data.index(b"\0", start)].decode(errors="replace")
