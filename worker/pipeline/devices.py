"""Devices behind a tracker that stopped answering: told to the job's watchers, and to whoever keeps the devices."""

from __future__ import annotations

from typing import Any

from domain.ports import OnEvent
from storage import quarantine
from worker import clock
from worker.pipeline.work import Work

QUARANTINE_SECONDS = 600.0


def listener(work: Work) -> OnEvent:
    def hear(kind: str, data: dict[str, Any]) -> None:
        if kind == "device" and data.get("state") == "lost":
            _lost(work, str(data["device"]), str(data.get("message") or "it stopped answering"))

    return hear


def _lost(work: Work, device: str, reason: str) -> None:
    rpc = work.request.rpc
    if rpc is None:
        return
    name = f"{rpc.tracker}/{rpc.key}/{device}"
    with work.database.transaction() as session:
        quarantine.add(session, name, job_id=work.job.id, reason=reason, now=clock.now(), seconds=QUARANTINE_SECONDS)
    work.note_once(f"device {device} is lost: {reason[:500]}; going on with the others of key {rpc.key!r}")
