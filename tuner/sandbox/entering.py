"""``… LIMITS PROGRAM ARGUMENT…``: become a program with limits that it cannot raise; ``LIMITS`` are JSON, those of
``limits.Limits``.

A program of its own because what is done between fork and exec would run Python in a child of a threaded process.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from typing import Any

from tuner.sandbox import filters, landlock, namespaces

_FAR_TOO_MANY = 4096
"""Processes and threads of one engine; one with 128 cores has under 1000."""
_COUNTS_BY_NAMESPACE = (5, 14)
"""The first Linux that counts the processes of each user namespace by themselves."""


def main() -> None:
    limits, program = json.loads(sys.argv[1]), sys.argv[2:]
    _limit(limits)
    _enter(limits)
    try:
        os.execv(program[0], program)  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.exit(f"{program[0]}: {error.strerror}")


def probe() -> None:
    """Print, as JSON, what a sandbox can take away on this machine."""
    nothing_else: dict[str, Any] = {"shown": [], "sockets": []}
    print(json.dumps(_enter({"offline": True, "hidden": sys.argv[1:], **nothing_else})))  # noqa: T201 - this is its answer


def _limit(limits: dict[str, Any]) -> None:
    for kind, limit in (
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_DATA, limits["data_bytes"]),
        (resource.RLIMIT_CPU, limits["cpu_seconds"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
    ):
        if limit:
            _lower(kind, limit)
    _lower(resource.RLIMIT_CORE, 0)


def _lower(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    lowered = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (lowered, lowered))


def _release() -> tuple[int, ...]:
    """Of the kernel, such as (6, 8)."""
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))


def _enter(limits: dict[str, Any]) -> dict[str, bool]:
    own = namespaces.leave(network=not limits["offline"])
    if own and os.geteuid() != 0 and _release() >= _COUNTS_BY_NAMESPACE:
        # Counted in its own user namespace only: elsewhere the user's other programs would count as well.
        _lower(resource.RLIMIT_NPROC, _FAR_TOO_MANY)
    emptied = "files" in own and namespaces.hide(limits["hidden"], limits["shown"])
    if emptied:
        namespaces.hide(limits["sockets"], [])
    privileges = namespaces.drop_privileges()
    kept = landlock.restrict([] if emptied else limits["hidden"], limits["shown"])
    network = "network" in own
    return {
        "network": network,
        "files": emptied or "files" in kept,
        "calls": filters.set_filter(internet=network or not limits["offline"]),
        "signals": "signals" in kept,
        "privileges": privileges,
    }
