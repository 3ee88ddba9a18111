"""Symbols of shared libraries, as binutils read them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

MANYLINUX2014 = (2, 17)


def symbols(library: Path, kind: str) -> list[str]:
    command = ["nm", "-D", kind, str(library)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.splitlines()


def assert_old_glibc_alone(library: Path) -> None:
    needed = symbols(library, "--undefined-only")
    versions = [tuple(map(int, found.split("."))) for line in needed for found in re.findall(r"@GLIBC_([\d.]+)", line)]
    assert versions
    assert max(versions) <= MANYLINUX2014, needed
