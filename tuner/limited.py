"""``python limited.py MEMORY_BYTES CPU_SECONDS FILE_BYTES PROGRAM…``: run a program with limits that it cannot raise.

A program of its own because limits set between fork and exec would run Python in a child of a threaded process.
"""

import os
import resource
import sys


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
    os.execv(sys.argv[4], sys.argv[4:])  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main()
