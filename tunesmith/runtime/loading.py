"""Libraries of bundles: finding, checking and loading them."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tunesmith import archives
from tunesmith.runtime import interface

LIBRARY, WEIGHTS, MANIFEST = "libmodel.so", "libmodel.weights", "manifest.json"
_MAX_MANIFEST_BYTES = 4 * 1024**2
_CHUNK_BYTES = 1024 * 1024
_loaded: dict[str, interface.Api] = {}
"""Libraries of bundles by sha256: their sessions share weights. They cannot be unloaded."""
_loading = threading.Lock()


class LoadError(Exception):
    """The model cannot be loaded; the text says why."""


def load(path: str | os.PathLike[str], digest: str | None = None) -> interface.Api:
    """Load the library of a bundle, of a folder with its files, or a library file itself.

    ``digest`` is the expected sha256 of the bundle or library in hex. Raises LoadError.
    """
    given = Path(path)
    try:
        if given.is_dir():
            if digest is not None:
                raise LoadError(f"{given} is a folder, which has no digest")
            return _load_unpacked(given)
        with given.open("rb") as file:
            if digest is not None:
                _require(_digest(file, 0, given.stat().st_size), digest.lower().removeprefix("sha256:"), str(given))
            file.seek(0)
            if file.read(4) == b"\x7fELF":
                return _open(given)
            return _load_bundle(file, given)
    except OSError as error:
        raise LoadError(f"cannot load {given}: {error}") from error


def _load_unpacked(folder: Path) -> interface.Api:
    with (folder / MANIFEST).open("rb") as file:
        expected = _expected(file.read(_MAX_MANIFEST_BYTES), str(folder))
    library = folder / LIBRARY
    with library.open("rb") as file:
        _require(_digest(file, 0, library.stat().st_size), expected, LIBRARY)
    return _open(library)


def _load_bundle(file: BinaryIO, path: Path) -> interface.Api:
    try:
        members = {member.name: member for member in archives.members(file)}
    except archives.InvalidArchive as error:
        raise LoadError(f"{path} is neither a bundle nor a library: {error}") from error
    if MANIFEST not in members or members[MANIFEST].size > _MAX_MANIFEST_BYTES:
        raise LoadError(f"{path} is no bundle: it has no {MANIFEST}")
    file.seek(members[MANIFEST].start)
    expected = _expected(file.read(members[MANIFEST].size), str(path))
    if LIBRARY not in members:
        raise LoadError(f"{path} lacks {LIBRARY}, which its manifest names")
    with _loading:
        if expected not in _loaded:
            _loaded[expected] = _open_copy(file, members, expected)
        return _loaded[expected]


def _open_copy(file: BinaryIO, members: Mapping[str, archives.Member], expected: str) -> interface.Api:
    """Load a bundle's library. The copy's name is new: the dynamic loader takes a known name for the same library."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tunesmith-") as folder:
        for name in (LIBRARY, WEIGHTS):
            if name not in members:
                continue
            digest = hashlib.sha256()
            with Path(folder, name).open("wb") as copy:
                for chunk in _chunks(file, members[name].start, members[name].size):
                    digest.update(chunk)
                    copy.write(chunk)
            # The library knows the digest of its weights.
            if name == LIBRARY:
                _require(digest.hexdigest(), expected, LIBRARY)
        return _open(Path(folder, LIBRARY))


def _open(path: Path) -> interface.Api:
    try:
        return interface.load(str(path.absolute()))
    except ValueError as error:
        raise LoadError(f"cannot use {path}: {error}") from error


def _expected(manifest: bytes, where: str) -> str:
    """Return the sha256 of the library in hex. Raises LoadError for a bundle without one."""
    try:
        document: Any = json.loads(manifest)
        files, need = document["files"], document.get("needs_tvm")
        expected = files.get(LIBRARY)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LoadError(f"{where} is no bundle: its {MANIFEST} cannot be read: {error}") from error
    if expected is None:
        reason = f"it needs TVM for {need}" if need else "it was made by an older release or for another format"
        raise LoadError(f"{where} has no {LIBRARY}: {reason}; run it as its README.md says")
    return str(expected)


def _require(actual: str, expected: str, name: str) -> None:
    if actual != expected:
        raise LoadError(f"the sha256 of {name} is {actual}, not {expected}: it was changed or damaged")


def _digest(file: BinaryIO, start: int, size: int) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(file, start, size):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(file: BinaryIO, start: int, size: int) -> Iterator[bytes]:
    file.seek(start)
    while size > 0 and (chunk := file.read(min(size, _CHUNK_BYTES))):
        size -= len(chunk)
        yield chunk
