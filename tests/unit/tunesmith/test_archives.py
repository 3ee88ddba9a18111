"""Archives as archivers write them, and as attackers do."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hostile.tars import hostile
from tunesmith import archives

CONTENTS = {"a": b"", "folder/b": b"b" * 511, "c": b"c" * 512, "d": b"d" * 100_000}


def tar(*extra: tarfile.TarInfo, kind: int = tarfile.PAX_FORMAT, **attributes: Any) -> bytes:
    """Of CONTENTS and the folder, after extra members without content."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as archive:
        for member in extra:
            archive.addfile(member)
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in CONTENTS.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for attribute, value in attributes.items():
                setattr(member, attribute, value)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def read(content: bytes) -> dict[str, bytes]:
    file = io.BytesIO(content)
    found = [member for member in archives.members(file) if not member.is_folder]
    return {member.name: archives.content(file, member).read() for member in found}


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_come_back_whichever_format_they_are_written_in(kind: int) -> None:
    assert read(tar(kind=kind)) == CONTENTS
    # Python notes fractions of seconds in an extended header of each file.
    assert read(tar(kind=kind, mtime=1.5)) == CONTENTS
    assert [member.name for member in archives.members(io.BytesIO(tar(kind=kind))) if member.is_folder] == ["folder/"]


def test_a_long_path_is_put_together() -> None:
    path = "/".join(["folder" * 10] * 3 + ["file"])
    assert archives.members(io.BytesIO(tar(tarfile.TarInfo(path), kind=tarfile.USTAR_FORMAT)))[0].name == path


def test_lines_are_read_from_the_middle() -> None:
    file = io.BytesIO(tar())
    member = archives.members(file)[-1]
    reader = archives.content(file, member)
    assert reader.readline(10) == b"d" * 10
    assert len(reader.readline()) == 100_000 - 10
    assert reader.read() == b""


def test_an_archive_of_nothing_is_empty() -> None:
    assert archives.members(io.BytesIO()) == []
    assert archives.members(io.BytesIO(bytes(10240))) == []


@pytest.mark.parametrize("name", hostile())
def test_extended_headers_are_never_parsed(name: str) -> None:
    with pytest.raises(archives.InvalidArchive, match=r"extended header of 200000 bytes|more than 64 headers"):
        archives.members(io.BytesIO(hostile()[name]))


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE,
        tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.GNUTYPE_SPARSE, tarfile.SOLARIS_XHDTYPE, b"?",
    ],
)  # fmt: skip
def test_nothing_but_files_and_folders(kind: bytes) -> None:
    member = tarfile.TarInfo("member")
    member.type = kind
    with pytest.raises(archives.InvalidArchive, match="'member' is neither a file nor a folder"):
        archives.members(io.BytesIO(tar(member, kind=tarfile.USTAR_FORMAT)))


@given(st.data())
def test_damage_is_refused_or_leaves_members_within_the_archive(data: st.DataObject) -> None:
    content = bytearray(tar(mtime=1.5))
    content = content[: data.draw(st.integers(0, len(content)))]
    for place in data.draw(st.lists(st.integers(0, 4095), max_size=3)):
        content[place : place + 1] = data.draw(st.binary(min_size=1, max_size=1))
    try:
        found = archives.members(io.BytesIO(content))
    except archives.InvalidArchive:
        return
    assert all(0 <= member.size <= len(content) - member.start for member in found)


def test_sizes_beyond_the_archive_are_refused() -> None:
    whole = tar(kind=tarfile.USTAR_FORMAT)
    with pytest.raises(archives.InvalidArchive, match="ends within 'd'"):
        archives.members(io.BytesIO(whole[:60_000]))
    # GNU's form of numbers that do not fit octal digits.
    binary = tarfile.TarInfo("large")
    binary.size = 2**40
    with pytest.raises(archives.InvalidArchive, match="in place of a number"):
        archives.members(io.BytesIO(binary.tobuf(tarfile.GNU_FORMAT)))
