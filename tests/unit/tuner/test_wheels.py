"""Wheels as zip files; tests/contract installs and runs one."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import zipfile
from pathlib import Path

import pytest

from tuner.results import manifest, wheels
from tunesmith import elf

FACTS = manifest.Manifest(
    model_digest="0" * 64, model_name="net", variant="tuned", target="llvm", threads=1, device_key="x86_64/a/b/t1",
    toolchain={"engine": "relay"}, precision="f32", inputs=(), outputs=(), created_by="a test",
)  # fmt: skip


def test_a_wheel_has_large_weights_and_the_digests_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "libmodel.so").write_bytes(b"library")
    (tmp_path / "libmodel.weights").write_bytes(bytes(3_000_000))
    with zipfile.ZipFile(tmp_path / wheels.write(tmp_path, FACTS)) as archive:
        assert archive.read("net/libmodel.weights") == bytes(3_000_000)
        [record] = [name for name in archive.namelist() if name.endswith("/RECORD")]
        rows = [line.split(",") for line in archive.read(record).decode().splitlines()]
        assert sorted(row[0] for row in rows) == sorted(archive.namelist())
        for name, digest, size in rows:
            if name != record:
                content = archive.read(name)
                hashed = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                assert (digest, size) == (f"sha256={hashed}", str(len(content)))


@pytest.mark.parametrize(
    ("versions", "target", "platform"),
    [
        (("GLIBC_2.2.5", "GLIBC_2.17"), "llvm", "manylinux2014_x86_64"),
        (("GLIBC_2.2.5", "GLIBC_2.18"), "llvm", "linux_x86_64"),
        (("GLIBC_2.17", "CXXABI_1.3"), "llvm", "linux_x86_64"),
        (("GLIBC_2.17",), "llvm -mtriple=aarch64-linux-gnu", "manylinux2014_aarch64"),
        (("GLIBC_2.34",), "llvm -mtriple=aarch64-linux-gnu", "linux_aarch64"),
    ],
)
def test_the_platform_is_what_the_library_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, versions: tuple[str, ...], target: str, platform: str
) -> None:
    read = elf.Dynamic(
        needed=[], imports=frozenset(), exports=frozenset(), versions=frozenset(versions), search_path="",
        writable_code="",
    )  # fmt: skip
    monkeypatch.setattr(elf, "read", lambda _: read)
    (tmp_path / "libmodel.so").write_bytes(b"library")
    name = wheels.write(tmp_path, dataclasses.replace(FACTS, target=target))
    assert name.endswith(f"-py3-none-{platform}.whl")
    assert wheels.NAME.fullmatch(name)
    with zipfile.ZipFile(tmp_path / name) as archive:
        [info] = [member for member in archive.namelist() if member.endswith("/WHEEL")]
        assert f"Tag: py3-none-{platform}\n" in archive.read(info).decode()


@pytest.mark.parametrize(
    ("model", "package"),
    [
        ("PP-OCR cls.onnx", "pp_ocr_cls"), ("2net", "model_2net"), ("class.onnx", "model_class"),
        ("json", "model_json"), ("numpy.onnx", "model_numpy"), ("モデル", "model"),
    ],
)  # fmt: skip
def test_a_package_has_a_name_that_can_be_imported_and_hides_no_other(tmp_path: Path, model: str, package: str) -> None:
    (tmp_path / "libmodel.so").write_bytes(b"library")
    with zipfile.ZipFile(tmp_path / wheels.write(tmp_path, dataclasses.replace(FACTS, model_name=model))) as archive:
        assert {name.split("/")[0] for name in archive.namelist() if ".dist-info" not in name} == {package}
