"""MetaSchedule's two files as one plain tar: how a database of records travels."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, BinaryIO, cast

from domain import errors
from tuner.native.metaschedule import RECORDS_FILE, WORKLOADS_FILE

_FILES = (WORKLOADS_FILE, RECORDS_FILE)
_MOST_MEMBERS = 16


@contextmanager
def opened(file: BinaryIO) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The workload file and the record file of an archive, to be read one after the other. Raises InvalidRequest."""
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            found = _members(archive)
            yield _content(archive, found[WORKLOADS_FILE]), _content(archive, found[RECORDS_FILE])
    except (tarfile.TarError, EOFError, OverflowError, ValueError) as error:
        raise _invalid(f"not a tar of {' and '.join(_FILES)}: {error}") from error


def write(file: IO[bytes], workloads: IO[bytes], records: IO[bytes]) -> None:
    """Both are read from their starts to their ends."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in zip(_FILES, (workloads, records), strict=True):
            member = tarfile.TarInfo(name)
            member.mode = 0o644
            member.size = content.seek(0, io.SEEK_END)
            content.seek(0)
            archive.addfile(member, content)


def _members(archive: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    found: dict[str, tarfile.TarInfo] = {}
    for place, member in enumerate(archive):
        if place >= _MOST_MEMBERS:
            raise _invalid(f"the tar has more than {_MOST_MEMBERS} members")
        if member.isdir():
            continue
        name = PurePosixPath(member.name).name
        if name not in _FILES or name in found or not member.isreg() or member.sparse is not None:
            raise _invalid(f"the tar holds {member.name[:80]!r}; it may only hold {' and '.join(_FILES)}, once each")
        found[name] = member
    for name in _FILES:
        if name not in found:
            raise _invalid(f"the tar lacks {name}")
    return found


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> BinaryIO:
    return cast("BinaryIO", archive.extractfile(member))


def _invalid(message: str) -> errors.InvalidRequest:
    hint = f"Make it with: tar cf records.tar -C WORK_DIR {' '.join(_FILES)}"
    return errors.InvalidRequest(message, hint=hint)
