"""The trial spool: files to which an engine appends each trial before it reports it.

A trial that was finished but not stored, because the worker or the engine died, is read from there by the next attempt
on this host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from domain.records import Record, RecordKey, TrialError
from storage.tables import digest_of
from worker.pipeline.context import JobContext
from worker.pipeline.reuse import record_identity


def new_file(context: JobContext, *, suffix: str = "") -> Path:
    """Return a new path for one round's trials.

    Rounds do not share files: an engine that died may have left half a line, which must not be appended to. Workers
    that share a home folder need a ``suffix``.
    """
    folder = _folder(context)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{context.lease.attempt:04d}-{len(list(folder.iterdir())):06d}{suffix}.jsonl"


def trials(context: JobContext) -> Iterator[dict[str, Any]]:
    """Yield every trial in this host's spool for the job as it is placed now, oldest first, stored or not."""
    for path in sorted(_folder(context).glob("*.jsonl")):
        for line in _lines(path):
            try:
                trial = json.loads(line)
            except ValueError:
                continue
            if isinstance(trial, dict) and "schedule_digest" in trial:
                yield trial


def record_of(context: JobContext, data: dict[str, Any]) -> Record:
    """The record of a ``trial`` event or of a line of the spool."""
    error = data["error"]
    return Record(
        key=RecordKey(workload_key=data["workload_key"], **record_identity(context)),
        tuner=str(context.tuner),
        schedule=data["schedule"],
        schedule_digest=data["schedule_digest"],
        latencies=tuple(float(latency) for latency in data["latencies"]) if error is None else (),
        error=None if error is None else _error(error),
        error_message=data.get("error_message"),
        trial_number=int(data["trial_number"]),
        job_id=context.job.id,
        worker_id=context.lease.worker_id,
        finished_at=datetime.fromtimestamp(data["finished_at"], UTC),
        calibration=data.get("calibration"),
    )


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        # Another worker of this home folder has ended the job and removed its files.
        return []


def _folder(context: JobContext) -> Path:
    """Lines do not say which tuner found them and where they were measured: each pair has a folder of its own."""
    identity = [str(context.tuner), *map(str, record_identity(context).values())]
    return context.folder / "spool" / digest_of("\n".join(identity))[:16]


def _error(value: str) -> TrialError:
    return TrialError(value) if value in set(TrialError) else TrialError.UNKNOWN
