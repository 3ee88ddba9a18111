"""Tuning tasks that engines found, by the digest of what decides them: ``domain.extractions.key_of``.

A task's ``definition`` is the name of a file that is gone; its text is in ``workloads``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from domain.tuning_tasks import ExtractedTask
from storage import codec, statements
from storage.tables import ExtractionRow


def get(session: Session, key: str) -> list[ExtractedTask] | None:
    """In extraction order; None when nobody has extracted them yet. A model without any task has an empty list."""
    row = session.get(ExtractionRow, key)
    return None if row is None else [codec.load(ExtractedTask, task) for task in row.tasks]


def put(session: Session, key: str, tasks: Sequence[ExtractedTask], *, now: datetime) -> None:
    row = {"key_digest": key, "tasks": [codec.dump(task) for task in tasks], "created_at": now}
    statements.put(session, ExtractionRow, row, key=["key_digest"])
