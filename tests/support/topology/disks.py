"""A file system of some megabytes for one folder, which can be filled up. It takes the right to mount."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

MEGABYTES = 192
_CHUNK = b"\0" * 65536


@dataclass(frozen=True, kw_only=True)
class Disk:
    folder: Path

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"

    def fill(self) -> None:
        """To the last byte."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT)
        try:
            for size in (len(_CHUNK), 1):
                with contextlib.suppress(OSError):
                    while os.write(descriptor, _CHUNK[:size]):
                        pass
        finally:
            os.close(descriptor)

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def is_full(self) -> bool:
        try:
            probe = self.folder / "probe"
            probe.write_bytes(b"x" * 8192)
            probe.unlink()
        except OSError as error:
            return error.errno == errno.ENOSPC
        return False

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", self.folder], check=False, stderr=subprocess.DEVNULL)


def mount(folder: Path) -> Disk | None:
    """None where we may not mount."""
    options = f"size={MEGABYTES}m,mode=700"
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", folder], check=False, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None
    return Disk(folder=folder) if done.returncode == 0 else None
