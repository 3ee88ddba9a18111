"""``tunesmith verify`` before it looks into libraries, and its reader of libraries."""

from __future__ import annotations

import _ctypes
import contextlib
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.results import bundle
from tunesmith import elf, errors, verifying

TEXT = b"a text"
LIBRARY = Path(_ctypes.__file__).read_bytes()


def manifest(**changes: object) -> bytes:
    facts = {
        "model_name": "m", "model_digest": "ab" * 32, "target": "llvm", "created_by": "a test",
        "files": {"README.md": hashlib.sha256(TEXT).hexdigest()},
    }  # fmt: skip
    return json.dumps({**facts, **changes}).encode()


def tar(path: Path, *files: tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_what_passed_is_told(tmp_path: Path) -> None:
    files = dict.fromkeys(("README.md", "example.py", *sorted(bundle.MODELS)), hashlib.sha256(TEXT).hexdigest())
    path = tar(tmp_path / "b.tar", *((name, TEXT) for name in files), ("manifest.json", manifest(files=files)))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    checked = verifying.check(path, digest=f"sha256:{digest.upper()}")
    assert (checked.sha256, checked.libraries, checked.unchecked) == (digest, {}, ("example.py",))


@pytest.mark.parametrize(
    ("files", "code", "told"),
    [
        ([], "invalid_bundle", r"no manifest\.json"),
        ([("manifest.json", b"[" * 100_000)], "invalid_bundle", "cannot be read"),
        ([("manifest.json", manifest(files=[1]))], "invalid_bundle", "cannot be read"),
        ([("manifest.json", manifest(target=None))], "invalid_bundle", "cannot be read"),
        ([("manifest.json", manifest(model_digest="x"))], "invalid_bundle", "cannot be read"),
        ([("manifest.json", manifest())], "invalid_bundle", r"lacks 'README\.md'"),
        ([("manifest.json", manifest()), ("README.md", b"other")], "wrong_digest", r"sha256 of README\.md"),
        ([("manifest.json", manifest()), ("README.md", TEXT), ("README.md", TEXT)], "invalid_bundle", "twice"),
        ([("manifest.json", manifest()), ("README.md", TEXT), ("more", TEXT)], "invalid_bundle", "does not name"),
        ([("manifest.json", manifest()), ("a/README.md", TEXT)], "invalid_bundle", "which no bundle has"),
        ([("manifest.json", manifest()), ("\x1b[2J", TEXT)], "invalid_bundle", "which no bundle has"),
    ],
)
def test_what_is_refused(tmp_path: Path, files: list[tuple[str, bytes]], code: str, told: str) -> None:
    with pytest.raises(errors.InvalidInput, match=told) as caught:
        verifying.check(tar(tmp_path / "b.tar", *files))
    assert caught.value.code == code


def test_a_library_that_is_none_is_refused(tmp_path: Path) -> None:
    files = {"libmodel.so": hashlib.sha256(TEXT).hexdigest()}
    path = tar(tmp_path / "b.tar", ("libmodel.so", TEXT), ("manifest.json", manifest(files=files)))
    with pytest.raises(errors.InvalidInput, match="not a 64-bit little-endian ELF file") as caught:
        verifying.check(path)
    assert caught.value.code == "suspicious_library"


def test_the_reader_of_libraries_knows_what_the_loader_does() -> None:
    found = elf.read(LIBRARY)
    assert "PyInit__ctypes" in found.exports
    assert "PyDict_New" in found.imports
    assert not found.imports & found.exports
    assert "libc.so.6" in found.needed
    assert any(version.startswith("GLIBC_2.") for version in found.versions)
    assert found.writable_code == ""


@given(st.lists(st.tuples(st.integers(0, 4096), st.binary(min_size=1, max_size=8)), max_size=8), st.integers(0, 2**20))
def test_damaged_libraries_are_refused_or_read(changes: list[tuple[int, bytes]], length: int) -> None:
    data = bytearray(LIBRARY)
    for place, content in changes:
        data[place : place + len(content)] = content
    with contextlib.suppress(ValueError):
        elf.read(bytes(data[:length]))
