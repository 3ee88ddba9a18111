"""Export and import of records in the formats of TVM's tuners."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

import httpx

from tunesmith import archives, downloads, errors
from tunesmith.transport import Transport

METASCHEDULE_FILES = ("database_workload.json", "database_tuning_record.json")
"""Files of a MetaSchedule database folder, which are transferred as a tar."""
_PATH = "/v1/records"
_CHUNK = 256 * 1024


class Filters(TypedDict, total=False):
    """Filters; a record must match all that are given."""

    target: str | None
    """``llvm -mcpu=znver3``, or with its thread count: ``llvm -mcpu=znver3 -num-cores=2``."""
    device: str | None
    toolchain: str | None
    workload: str | None
    job: str | None
    valid_only: bool
    provenance: str | None
    """``measured`` or ``imported``. By default both, but exports have measured records."""
    owner: str | None
    """Who imported them; for admins."""
    state: str | None
    """What became of imported records: ``untried``, ``measured``, ``failed``, ``rejected`` or ``invalidated``."""


class ImportFilters(TypedDict, total=False):
    """Filters of imported records; a record must match all that are given, and one must be."""

    id: list[str]
    tuner: str | None
    target: str | None
    device: str | None
    toolchain: str | None
    workload: str | None
    state: str | None
    owner: str | None


class Origin(TypedDict, total=False):
    """Where imported records come from; device and toolchain default to those of the only live worker."""

    target: str | None
    threads: int | None
    device: str | None
    toolchain: str | None


def export(transport: Transport, path: Path, tuner: str, filters: Mapping[str, Any]) -> Path:
    """Export records atomically to ``path``; for MetaSchedule a folder, or a ``.tar``.

    Raises InvalidInput if no record matches, or ``path`` cannot be written; existing files are then left unchanged.
    """
    unpacks = tuner == "metaschedule" and path.suffix != ".tar"
    if path.is_dir() and not unpacks:
        raise errors.InvalidInput(f"{path} is a folder", code="unwritable_file", hint="Name a file in it.")
    made = unpacks and not path.exists()
    given = {name: value for name, value in filters.items() if value is not None}
    query = httpx.QueryParams({**given, "tuner": tuner, "format": "native"})
    with downloads.writing(path):
        if unpacks:
            path.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path if unpacks else path.parent, prefix=".records.")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file, transport.stream(f"{_PATH}?{query}") as response:
                for chunk in response.iter_bytes():
                    file.write(chunk)
            if _is_empty(temporary, packed=tuner == "metaschedule"):
                raise errors.InvalidInput(
                    "no record matches",
                    hint="Omit some options, or export imported records with provenance imported; see the page "
                    "/records or GET /v1/records.",
                )
            if unpacks:
                _unpack(temporary, path)
            else:
                temporary.chmod(0o644)
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
            if made:
                with contextlib.suppress(OSError):
                    # Fails if the folder is not empty.
                    path.rmdir()
    return path


def invalidate(transport: Transport, filters: Mapping[str, Any]) -> int:
    query = httpx.QueryParams({name: value for name, value in filters.items() if value})
    return int(transport.post(f"{_PATH}:invalidate?{query}").json()["records"])


def delete(transport: Transport, filters: Mapping[str, Any]) -> int:
    query = httpx.QueryParams({name: value for name, value in filters.items() if value})
    return int(transport.delete(f"{_PATH}?{query}").json()["records"])


def take(transport: Transport, path: Path, tuner: str, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Import a file of lines, a tar, or a folder with MetaSchedule's two files; returns the server's report."""
    with tempfile.TemporaryFile() as packed:
        if path.is_dir():
            _pack(path, packed)
            packed.seek(0)
            return _send(transport, packed, tuner, origin)
        try:
            file = path.open("rb")
        except OSError as error:
            raise errors.unreadable(path) from error
        with file:
            return _send(transport, file, tuner, origin)


def _send(transport: Transport, file: BinaryIO, tuner: str, origin: Mapping[str, Any]) -> dict[str, Any]:
    size = file.seek(0, io.SEEK_END)

    def content() -> Iterator[bytes]:
        file.seek(0)
        while chunk := file.read(_CHUNK):
            yield chunk

    answer = transport.upload("POST", _PATH, content, size=size, params={**origin, "tuner": tuner})
    return dict(answer.json())


def _pack(folder: Path, packed: BinaryIO) -> None:
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in METASCHEDULE_FILES:
            if not (folder / name).is_file():
                raise errors.unreadable(folder / name)
            archive.add(folder / name, name)


def _is_empty(path: Path, *, packed: bool) -> bool:
    if not packed:
        return path.stat().st_size == 0
    with path.open("rb") as file:
        return not any(member.size for member in _members(file).values())


def _unpack(packed: Path, folder: Path) -> None:
    with packed.open("rb") as file:
        members = _members(file)
        for name in METASCHEDULE_FILES:
            if name not in members:
                raise errors.ServerError(f"the server's response lacks {name}")
            with (folder / name).open("wb") as to:
                shutil.copyfileobj(archives.content(file, members[name]), to)


def _members(file: BinaryIO) -> dict[str, archives.Member]:
    try:
        return {member.name: member for member in archives.members(file) if not member.is_folder}
    except archives.InvalidArchive as error:
        raise errors.ServerError(f"the server's response is not a tar: {error}") from error
