"""Shared libraries: their symbols, a root folder with nothing but libc to run them in, and an emulator for ARM's."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

MANYLINUX2014 = (2, 17)
ARM = "aarch64-linux-gnu"
_LIBC = re.compile(r"/\S*/(?:libc|libm|libpthread|ld-linux[^/]*)\.so\S*")


def compiler() -> str:
    """Return the C compiler for ARM; skip the test where it is missing."""
    name = f"{ARM}-gcc"
    return name if shutil.which(name) else pytest.skip(f"{name} is missing: apt install gcc-{ARM}")


def emulator() -> list[str]:
    """Return the command before programs for ARM; skip the test where that or the compiler is missing."""
    compiler()
    if not shutil.which("qemu-aarch64"):
        pytest.skip("qemu-aarch64 is missing: apt install qemu-user")
    return ["qemu-aarch64", "-L", f"/usr/{ARM}"]


def run(command: Sequence[str | Path], *, timeout: float = 60, **more: Any) -> str:
    """What a program prints that ends well and writes no errors."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout, check=False, **more)
    assert (done.returncode, done.stderr) == (0, ""), f"{command}: status {done.returncode}: {done.stderr[-3000:]}"
    return done.stdout


def symbols(library: Path, kind: str) -> list[str]:
    command = ["nm", "-D", kind, str(library)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.splitlines()


def assert_old_glibc_alone(library: Path) -> None:
    needed = symbols(library, "--undefined-only")
    versions = [tuple(map(int, found.split("."))) for line in needed for found in re.findall(r"@GLIBC_([\d.]+)", line)]
    assert versions
    assert max(versions) <= MANYLINUX2014, needed


def copy_with_libc(root: Path, *files: Path) -> None:
    """Copy programs and libraries into another root folder, under their own paths, with the parts of libc they need.

    Fails if they need more.
    """
    command = ["ldd", *map(str, files)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    needed = set(re.findall(r"(/\S+\.so\S*) \(0x", listed))
    assert all(map(_LIBC.fullmatch, needed)), needed
    for path in (*needed, *files):
        copy = root / str(path).lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
