"""Device files that engines write, to which Landlock must not deny access. Read-only mounts do not affect devices."""

from __future__ import annotations

import glob
import os

_ALWAYS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_NVIDIA = ("/dev/nvidia*", "/dev/dxg")
_ACCELERATORS = (*_NVIDIA, "/dev/dri", "/dev/kfd", "/dev/accel*")


def written() -> list[str]:
    """Return the existing device files and folders of such."""
    return [*_ALWAYS, *_found(_ACCELERATORS)]


def names_threads() -> bool:
    """Return whether engines must write to ``/proc/PID/task/TID/comm``: CUDA fails with error 304 if it cannot name
    its threads."""
    return bool(_found(_NVIDIA))


def _found(patterns: tuple[str, ...]) -> list[str]:
    return [path for pattern in patterns for path in glob.glob(pattern) if os.access(path, os.F_OK)]  # noqa: PTH207
