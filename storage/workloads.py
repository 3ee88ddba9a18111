"""Workloads in native form, if their keys are not enough to rebuild them, and extracted tuning tasks.

Keys of Ansor's and MetaSchedule's workloads are hashes. Extracted tasks are stored by the digest of everything that
determines them, ``domain.tuning_tasks.key_of``. A stored ``definition`` is the text itself instead of a file name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from domain.tuning_tasks import ExtractedTask
from storage import codec, statements
from storage.tables import ExtractionRow, WorkloadRow, workload_digest


def put_many(session: Session, by_key: Mapping[str, str], *, tuner: str) -> int:
    """Store an engine's definitions by workload key, replacing others; returns the number of new ones."""
    known = definitions(session, list(by_key))
    news = {key: definition for key, definition in by_key.items() if known.get(key) != definition}
    for key, definition in news.items():
        statements.put(session, WorkloadRow, _row(key, definition, tuner), key=["workload_digest"])
    return len(news)


def add_missing(session: Session, by_key: Mapping[str, str], *, tuner: str) -> int:
    """Store imported definitions that do not exist yet; returns their number."""
    rows = [_row(key, definition, tuner) for key, definition in by_key.items()]
    return statements.add_missing(session, WorkloadRow, rows, key=["workload_digest"])


def definitions(session: Session, workload_keys: Sequence[str]) -> dict[str, str]:
    """Return the definitions that exist, by workload key."""
    found: dict[str, str] = {}
    for digests in statements.workloads_at_once(workload_keys):
        query = select(WorkloadRow.workload_key, WorkloadRow.definition).where(WorkloadRow.workload_digest.in_(digests))
        found.update((key, definition) for key, definition in session.execute(query))
    return found


def _row(workload_key: str, definition: str, tuner: str) -> dict[str, str]:
    digest = workload_digest(workload_key)
    return {"workload_digest": digest, "workload_key": workload_key, "tuner": tuner, "definition": definition}


def extracted(session: Session, key: str) -> list[ExtractedTask] | None:
    """Return extracted tasks in extraction order; None if not extracted yet, and an empty list for a model
    without tasks."""
    row = session.get(ExtractionRow, key)
    return None if row is None else [codec.load(ExtractedTask, task) for task in row.tasks]


def put_extracted(session: Session, key: str, tasks: Sequence[ExtractedTask], *, now: datetime) -> None:
    row = {"key_digest": key, "tasks": [codec.dump(task) for task in tasks], "created_at": now}
    statements.put(session, ExtractionRow, row, key=["key_digest"])
