"""Wheels as zip files; tests/contract installs and runs one."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

from tuner.results import manifest, wheels


def test_a_wheel_has_large_weights_and_the_digests_of_all_files(tmp_path: Path) -> None:
    facts = manifest.Manifest(
        model_digest="0" * 64, model_name="net", variant="tuned", target="llvm", threads=1, device_key="x86_64/a/b/t1",
        toolchain={"engine": "relay"}, precision="f32", inputs=(), outputs=(), created_by="a test",
    )  # fmt: skip
    (tmp_path / "libmodel.so").write_bytes(b"library")
    (tmp_path / "libmodel.weights").write_bytes(bytes(3_000_000))
    with zipfile.ZipFile(tmp_path / wheels.write(tmp_path, facts)) as archive:
        assert archive.read("net/libmodel.weights") == bytes(3_000_000)
        [record] = [name for name in archive.namelist() if name.endswith("/RECORD")]
        rows = [line.split(",") for line in archive.read(record).decode().splitlines()]
        assert sorted(row[0] for row in rows) == sorted(archive.namelist())
        for name, digest, size in rows:
            if name != record:
                content = archive.read(name)
                hashed = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                assert (digest, size) == (f"sha256={hashed}", str(len(content)))
