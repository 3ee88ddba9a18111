"""All the faults, and the topology to which they are done."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from tests.support.topology import running
from tests.support.topology.engines import Engines
from tests.system.faults import on_hosts, on_processes, on_servers

FAULTS = {fault.name: fault for fault in (*on_processes.FAULTS, *on_servers.FAULTS, *on_hosts.FAULTS)}
WORKERS = {"worker-1": "host-1", "worker-2": "host-1", "worker-3": on_hosts.SMALL}
"""Two on one host, which share its device and its folders, and one elsewhere."""


def topology(kind: Engines, *, keep: Path | None = None) -> AbstractContextManager[running.Topology]:
    """Raises Missing where a server is not installed."""
    return running.running(
        kind=kind,
        workers=WORKERS,
        settings={"TUNESMITH_BROKER_VISIBILITY_SECONDS": str(on_servers.VISIBILITY_SECONDS)},
        small_disks=frozenset({on_hosts.SMALL}),
        keep=keep,
    )
