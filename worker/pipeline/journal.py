"""Trials that an engine finished, on disk before anybody is told: what a killed worker did not store is found here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from domain.records import Record, RecordKey, TrialError
from storage.tables import digest_of
from worker.pipeline.covering import record_identity
from worker.pipeline.work import Work


def new_file(work: Work, *, suffix: str = "") -> Path:
    """One for each round: an engine that died may have left half a line, which nobody must append to.

    Workers that share a home folder need a ``suffix``.
    """
    folder = _folder(work)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{work.lease.attempt:04d}-{len(list(folder.iterdir())):06d}{suffix}.jsonl"


def entries(work: Work) -> Iterator[dict[str, Any]]:
    """Every trial ever journaled on this host for the job as it is placed now, oldest first."""
    for path in sorted(_folder(work).glob("*.jsonl")):
        for line in _lines(path):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and "schedule_digest" in entry:
                yield entry


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        # Another worker of this home folder has ended the job and cleared its files away.
        return []


def record(work: Work, data: dict[str, Any]) -> Record:
    """The record of a ``trial`` event's or a journal line's data."""
    error = data["error"]
    return Record(
        key=RecordKey(workload_key=data["workload_key"], **record_identity(work)),
        tuner=str(work.tuner),
        schedule=data["schedule"],
        schedule_digest=data["schedule_digest"],
        latencies=tuple(float(latency) for latency in data["latencies"]) if error is None else (),
        error=None if error is None else _error(error),
        error_message=data.get("error_message"),
        trial_number=int(data["trial_number"]),
        job_id=work.job.id,
        worker_id=work.lease.worker_id,
        finished_at=datetime.fromtimestamp(data["finished_at"], UTC),
        calibration=data.get("calibration"),
    )


def _folder(work: Work) -> Path:
    """Lines do not tell what found and measured them: each tuner at each placement has a folder of its own."""
    identity = [str(work.tuner), *record_identity(work).values()]
    return work.folder / "journal" / digest_of("\n".join(identity))[:16]


def _error(value: str) -> TrialError:
    return TrialError(value) if value in set(TrialError) else TrialError.UNKNOWN
