"""Reading of uncompressed tar archives that somebody else wrote.

``tarfile`` must not read them: it parses extended headers with regular expressions that take quadratic time while they
hold the interpreter's lock, raises undocumented errors, and follows links. This reader looks at the headers alone. It
accepts plain files and folders, and skips small pax headers, in which archivers note fractions of seconds.
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO, NamedTuple

_BLOCK_BYTES = 512
_BUFFER_BYTES = 256 * 1024
_MOST_HEADERS = 64
_LARGEST_EXTENSION_BYTES = 4096
_FILES, _FOLDER, _EXTENSIONS = (b"0", b"\0"), b"5", (b"x", b"g")
_CHECKSUM = slice(148, 156)


class InvalidArchive(ValueError):
    """Not a tar of plain files and folders; the text says why."""


class Member(NamedTuple):
    name: str
    """As in the archive; an untrusted path."""
    is_folder: bool
    start: int
    """Offset of the content, in bytes."""
    size: int
    """Bytes; all of them are in the archive."""


def members(file: BinaryIO, *, most: int = _MOST_HEADERS) -> list[Member]:
    """Return files and folders in their order, of an archive with at most ``most`` headers.

    Raises InvalidArchive, and OSError if reading fails.
    """
    end, place = file.seek(0, io.SEEK_END), 0
    found: list[Member] = []
    for _ in range(most):
        file.seek(place)
        header = file.read(_BLOCK_BYTES)
        if not header.strip(b"\0"):
            return found
        if len(header) < _BLOCK_BYTES or _number(header[_CHECKSUM]) != _checksum(header):
            raise InvalidArchive(f"there is no header at byte {place}")
        kind, member = header[156:157], _member(header, place + _BLOCK_BYTES)
        if kind in _EXTENSIONS:
            if member.size > _LARGEST_EXTENSION_BYTES:
                raise InvalidArchive(
                    f"it has an extended header of {member.size} bytes; the limit is {_LARGEST_EXTENSION_BYTES}"
                )
        elif kind not in _FILES and kind != _FOLDER:
            raise InvalidArchive(f"{member.name[:80]!r} is neither a file nor a folder: its type is {kind!r}")
        else:
            found.append(member)
        place = member.start + member.size
        if place > end:
            raise InvalidArchive(f"it ends within {member.name[:80]!r}")
        place += -place % _BLOCK_BYTES
    raise InvalidArchive(f"it has more than {most} headers")


def content(file: BinaryIO, member: Member) -> io.BufferedReader:
    """Return a reader of the member's bytes, which uses ``file`` and leaves it open."""
    return io.BufferedReader(_Content(file, member), _BUFFER_BYTES)


class _Content(io.RawIOBase):
    def __init__(self, file: BinaryIO, member: Member) -> None:
        self._file = file
        self._place, self._end = member.start, member.start + member.size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._file.seek(self._place)
        chunk = self._file.read(min(len(buffer), self._end - self._place))
        buffer[: len(chunk)] = chunk
        self._place += len(chunk)
        return len(chunk)


def _member(header: bytes, start: int) -> Member:
    name = _text(header[:100])
    # GNU tar uses the bytes of the prefix for other things, and another mark.
    if header[257:263] == b"ustar\0" and (prefix := _text(header[345:500])):
        name = f"{prefix}/{name}"
    kind = header[156:157]
    # Archives from before the type of folders name them with a slash.
    is_folder = kind == _FOLDER or (kind == b"\0" and name.endswith("/"))
    size = _number(header[124:136])
    if is_folder and size:
        raise InvalidArchive(f"the folder {name[:80]!r} has a content")
    return Member(name=name, is_folder=is_folder, start=start, size=size)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")


def _number(field: bytes) -> int:
    """Parse octal digits. Raises InvalidArchive also for GNU's binary numbers, of files of 8 GiB and more."""
    digits = field.partition(b"\0")[0].strip(b" ")
    if digits.strip(b"01234567"):
        raise InvalidArchive(f"its headers contain {field[:12]!r} in place of a number")
    return int(digits or b"0", 8)


def _checksum(header: bytes) -> int:
    """Return the sum of the bytes, with spaces for the checksum itself."""
    return sum(header) - sum(header[_CHECKSUM]) + len(header[_CHECKSUM]) * ord(" ")
