"""``python limited.py MEMORY_BYTES CPU_SECONDS FILE_BYTES NETWORK PROGRAM…``: run a program with limits that it cannot
raise; ``offline`` as NETWORK leaves it none, where the kernel lets us.

A program of its own because limits set between fork and exec would run Python in a child of a threaded process.
"""

import ctypes
import os
import resource
import sys

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
"""Flags of unshare(2), which Python has from 3.12 on."""


def leave_network() -> bool:
    """Whether this process is in a network of its own now, where nothing is."""
    # Whoever is not root may have a network of their own only as a user of their own.
    flags = _NEW_NETWORK if os.geteuid() == 0 else _NEW_NETWORK | _NEW_USER
    try:
        return bool(ctypes.CDLL(None).unshare(flags) == 0)
    except (OSError, AttributeError):
        return False


def main() -> None:
    memory, seconds, file_size = (int(argument) for argument in sys.argv[1:4])
    for kind, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        lowered = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (lowered, lowered))
    if sys.argv[4] == "offline":
        # Containers often forbid it; what is read there may still name no host.
        leave_network()
    os.execv(sys.argv[5], sys.argv[5:])  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main()
