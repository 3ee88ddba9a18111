"""Libraries of bundles: finding, checking and loading them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tunesmith import archives
from tunesmith.runtime import interface

LIBRARY, WEIGHTS, MANIFEST = "libmodel.so", "libmodel.weights", "manifest.json"
RUNTIMES = ("onnxruntime", "openvino")
"""Runtimes of models, as manifests and Python name them."""
_MAX_MANIFEST_BYTES = 4 * 1024**2
_CHUNK_BYTES = 1024 * 1024
_loaded: dict[str, interface.Api] = {}
"""Libraries of bundles by sha256: their sessions share weights. They cannot be unloaded."""
_loading = threading.Lock()


class LoadError(Exception):
    """The model cannot be loaded; the text says why."""


class ModelFacts(NamedTuple):
    """The model for another runtime than the library, as the manifest describes it."""

    name: str
    """One of ``RUNTIMES``."""
    version: str
    """With which it was measured."""
    options: dict[str, str]
    """Which the benchmark chose, as the runtime names them."""
    threads: int
    file: str
    sha256: str
    """Of the file, in hex."""
    inputs: list[tuple[str, str, list[int | str | None]]]
    """Name, dtype and shape."""
    outputs: list[tuple[str, str, list[int | str | None]]]
    """Sizes that depend on the inputs' values, such as a number of boxes, are names or None."""
    model_digest: str
    """sha256 of the uploaded model, in hex."""
    target: str


def facts(path: str | os.PathLike[str]) -> ModelFacts | None:
    """Return what the bundle's manifest, which is not checked, says of a model for another runtime.

    None if it has no such model, and for other files, whose faults ``load`` reports.
    """
    given = Path(path)
    try:
        if given.is_dir():
            with (given / MANIFEST).open("rb") as file:
                return _facts(file.read(_MAX_MANIFEST_BYTES))
        with given.open("rb") as file:
            if file.read(4) == b"\x7fELF":
                return None
            file.seek(0)
            members = {member.name: member for member in archives.members(file)}
            return _facts(_manifest(file, members, str(given)))
    except (OSError, archives.InvalidArchive, LoadError):
        return None


@contextmanager
def model(
    path: str | os.PathLike[str], digest: str | None = None, *, runtime: str
) -> Iterator[tuple[ModelFacts, Path]]:
    """Yield the model for a runtime of a bundle or of a folder with its files, once its digest is checked.

    ``digest`` is the expected sha256 of the bundle in hex. Raises LoadError, also for bundles without such a model.
    """
    import tempfile

    given = Path(path)
    try:
        if given.is_dir():
            if digest is not None:
                raise LoadError(f"{given} is a folder, which has no digest")
            with (given / MANIFEST).open("rb") as file:
                found = _require_facts(file.read(_MAX_MANIFEST_BYTES), given, runtime)
            with (given / found.file).open("rb") as file:
                _require(_digest(file), found.sha256, found.file)
            yield found, given / found.file
            return
        with given.open("rb") as file, tempfile.TemporaryDirectory(prefix="tunesmith-") as folder:
            if digest is not None:
                _require(_digest(file), digest.lower().removeprefix("sha256:"), str(given))
            file.seek(0)
            members = {member.name: member for member in archives.members(file)}
            found = _require_facts(_manifest(file, members, str(given)), given, runtime)
            if found.file not in members:
                raise LoadError(f"{given} lacks {found.file}, which its manifest names")
            copy = Path(folder, "model.onnx")
            _require(_copy(file, members[found.file], copy), found.sha256, found.file)
            yield found, copy
    except archives.InvalidArchive as error:
        raise LoadError(f"{given} is neither a bundle nor a library: {error}") from error
    except OSError as error:
        raise LoadError(f"cannot load {given}: {error}") from error


def _require_facts(manifest: bytes, path: Path, runtime: str) -> ModelFacts:
    found = _facts(manifest)
    if found is None or found.name != runtime:
        reason = f"it is for {found.name}" if found else "its library was not slower, or is all that was asked for"
        raise LoadError(f"{path} has no model for {runtime}: {reason}")
    return found


def _facts(manifest: bytes) -> ModelFacts | None:
    try:
        document: Any = json.loads(manifest)
        runtime = document.get("runtime")
        if not isinstance(runtime, dict) or runtime.get("name") not in RUNTIMES:
            return None
        file = str(runtime["model"])
        if Path(file).name != file:
            return None
        specs = [
            [(str(spec["name"]), str(spec["dtype"]), list(map(_size, spec["shape"]))) for spec in document[side]]
            for side in ("inputs", "outputs")
        ]
        options = {str(name): str(value) for name, value in runtime.get("options", {}).items()}
        return ModelFacts(
            name=runtime["name"], version=str(runtime["version"]), options=options,
            threads=max(1, int(runtime["threads"])), file=file,
            sha256=str(document["files"][file]), inputs=specs[0], outputs=specs[1],
            model_digest=str(document["model_digest"]), target=str(document["target"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _size(given: Any) -> int | str | None:
    return given if given is None or isinstance(given, str) else int(given)


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
                _require(_digest(file), digest.lower().removeprefix("sha256:"), str(given))
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
        _require(_digest(file), expected, LIBRARY)
    return _open(library)


def _load_bundle(file: BinaryIO, path: Path) -> interface.Api:
    try:
        members = {member.name: member for member in archives.members(file)}
    except archives.InvalidArchive as error:
        raise LoadError(f"{path} is neither a bundle nor a library: {error}") from error
    expected = _expected(_manifest(file, members, str(path)), str(path))
    if LIBRARY not in members:
        raise LoadError(f"{path} lacks {LIBRARY}, which its manifest names")
    with _loading:
        if expected not in _loaded:
            _loaded[expected] = _open_copy(file, members, expected)
        return _loaded[expected]


def _manifest(file: BinaryIO, members: Mapping[str, archives.Member], where: str) -> bytes:
    if MANIFEST not in members or members[MANIFEST].size > _MAX_MANIFEST_BYTES:
        raise LoadError(f"{where} is no bundle: it has no {MANIFEST}")
    file.seek(members[MANIFEST].start)
    return file.read(members[MANIFEST].size)


def _open_copy(file: BinaryIO, members: Mapping[str, archives.Member], expected: str) -> interface.Api:
    """Load a bundle's library. The copy's name is new: the dynamic loader takes a known name for the same library."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tunesmith-") as folder:
        for name in (LIBRARY, WEIGHTS):
            if name not in members:
                continue
            digest = _copy(file, members[name], Path(folder, name))
            # The library knows the digest of its weights.
            if name == LIBRARY:
                _require(digest, expected, LIBRARY)
        return _open(Path(folder, LIBRARY))


def _copy(file: BinaryIO, member: archives.Member, to: Path) -> str:
    """Copy a file of a bundle and return its sha256 in hex."""
    import hashlib

    digest, left = hashlib.sha256(), member.size
    file.seek(member.start)
    with to.open("wb") as copy:
        while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
            left -= len(chunk)
            digest.update(chunk)
            copy.write(chunk)
    return digest.hexdigest()


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


def _digest(file: BufferedReader) -> str:
    # Programs that load a library file itself need no digests, which OpenSSL takes milliseconds to be loaded for.
    import hashlib

    return hashlib.file_digest(file, "sha256").hexdigest()
