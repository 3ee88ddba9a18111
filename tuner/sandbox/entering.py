"""``… LIMITS PROGRAM ARGUMENT…``: apply limits and run a program; ``LIMITS`` is JSON of ``limits.Limits``.

A separate program, as a ``preexec_fn`` would run Python in the forked child of a threaded process.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from typing import Any

from tuner.sandbox import devices, filters, landlock, namespaces

_FAR_TOO_MANY = 4096
"""Limit of processes and threads of an engine; with 128 cores it needs fewer than 1000."""
_COUNTS_BY_NAMESPACE = (5, 14)
"""First Linux release that counts processes for each user namespace."""


def main() -> None:
    limits, program = json.loads(sys.argv[1]), sys.argv[2:]
    _limit(limits)
    _enter(limits)
    try:
        os.execv(program[0], program)  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.exit(f"{program[0]}: {error.strerror}")


def probe() -> None:
    """Print as JSON which restrictions this machine supports."""
    nothing_else: dict[str, Any] = {"shown": [], "sockets": [], "writable": []}
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
    """Return the kernel's release, such as (6, 8)."""
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))


def _enter(limits: dict[str, Any]) -> dict[str, bool]:
    own = namespaces.leave(network=not limits["offline"])
    if own and os.geteuid() != 0 and _release() >= _COUNTS_BY_NAMESPACE:
        # Only in its own user namespace, as the user's other programs would count otherwise.
        _lower(resource.RLIMIT_NPROC, _FAR_TOO_MANY)
    emptied = "files" in own and namespaces.hide(limits["hidden"], limits["shown"])
    if emptied:
        namespaces.hide(limits["sockets"], [])
    names_threads = devices.names_threads()
    sealed = "files" in own and namespaces.seal(limits["writable"], processes=names_threads)
    privileges = namespaces.drop_privileges()
    kept = landlock.restrict(
        [] if emptied else limits["hidden"],
        limits["shown"],
        # Mounts do not keep root from writing to disks as devices, and Landlock's first version would forbid moving
        # files within the writable folders.
        None if sealed and not landlock.knows_moves() else limits["writable"],
        [*devices.written(), *(["/proc"] if names_threads else [])],
    )
    network = "network" in own
    return {
        "network": network,
        "files": emptied or "files" in kept,
        "writes": sealed or "writes" in kept,
        # Landlock does not restrict changes of permissions.
        "calls": filters.set_filter(internet=network or not limits["offline"], permissions=sealed),
        "signals": "signals" in kept,
        "privileges": privileges,
    }
