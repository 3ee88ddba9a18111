"""All the faults."""

from __future__ import annotations

from tests.system.faults import on_hosts, on_processes, on_servers

FAULTS = {fault.name: fault for fault in (*on_processes.FAULTS, *on_servers.FAULTS, *on_hosts.FAULTS)}
