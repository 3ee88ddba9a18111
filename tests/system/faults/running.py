"""The topology to which faults are done."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from tests.support.topology import running
from tests.support.topology.engines import Engines
from tests.system.faults.on_hosts import SMALL
from tests.system.faults.on_servers import VISIBILITY_SECONDS

WORKERS = {"worker-1": "host-1", "worker-2": "host-1", "worker-3": SMALL}
"""Two on one host, which share its device and its folders, and one elsewhere."""


def topology(kind: Engines, *, keep: Path | None = None) -> AbstractContextManager[running.Topology]:
    """Raises Missing where a server is not installed."""
    return running.running(
        kind=kind,
        workers=WORKERS,
        settings={"TUNESMITH_BROKER_VISIBILITY_SECONDS": str(VISIBILITY_SECONDS)},
        small_disks=frozenset({SMALL}),
        keep=keep,
    )
