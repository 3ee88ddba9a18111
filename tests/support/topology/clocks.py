"""The time of day of a host, which jumps when a test says so; PostgreSQL and other hosts keep theirs."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("jumping_clock.c")


@dataclass(frozen=True, kw_only=True)
class HostClock:
    path: Path
    library: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of the processes that have this clock."""
        return {"LD_PRELOAD": str(self.library), "TUNESMITH_TEST_CLOCK": str(self.path)}

    def jump(self, seconds: int) -> None:
        """So much before the true time from now on, or behind it."""
        with self.path.open("r+b") as file:
            file.write(struct.pack("q", seconds))


def compile_library(folder: Path) -> Path:
    """With the compiler that TVM needs as well."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "there is no C compiler"
    library = folder / "jumping_clock.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, _SOURCE], check=True, timeout=60)
    return library


def make(folder: Path, library: Path) -> HostClock:
    path = folder / "clock"
    path.write_bytes(struct.pack("q", 0))
    return HostClock(path=path, library=library)
