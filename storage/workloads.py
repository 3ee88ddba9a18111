"""Workloads in native form, where their keys alone do not rebuild them: Ansor's and MetaSchedule's are hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage import statements
from storage.tables import WorkloadRow, digest_of

_KEYS_AT_ONCE = 500


def put_many(session: Session, by_key: Mapping[str, str], *, tuner: str) -> int:
    """Store definitions that an engine wrote, by workload key, in place of others; return how many were news."""
    known = definitions(session, list(by_key))
    news = {key: definition for key, definition in by_key.items() if known.get(key) != definition}
    for key, definition in news.items():
        statements.put(session, WorkloadRow, _row(key, definition, tuner), key=["workload_digest"])
    return len(news)


def add_missing(session: Session, by_key: Mapping[str, str], *, tuner: str) -> int:
    """Store definitions that somebody brought along, where there is none; return how many were new."""
    rows = [_row(key, definition, tuner) for key, definition in by_key.items()]
    return statements.add_missing(session, WorkloadRow, rows, key=["workload_digest"])


def definitions(session: Session, workload_keys: Sequence[str]) -> dict[str, str]:
    """By workload key, of those that have one."""
    found: dict[str, str] = {}
    for start in range(0, len(workload_keys), _KEYS_AT_ONCE):
        digests = [digest_of(key) for key in workload_keys[start : start + _KEYS_AT_ONCE]]
        query = select(WorkloadRow.workload_key, WorkloadRow.definition).where(WorkloadRow.workload_digest.in_(digests))
        found.update((key, definition) for key, definition in session.execute(query))
    return found


def _row(workload_key: str, definition: str, tuner: str) -> dict[str, str]:
    digest = digest_of(workload_key)
    return {"workload_digest": digest, "workload_key": workload_key, "tuner": tuner, "definition": definition}
