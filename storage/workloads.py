"""Workloads in native form, where their keys alone do not rebuild them: Ansor's and MetaSchedule's are hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage import statements
from storage.tables import WorkloadRow, digest_of

_KEYS_AT_ONCE = 500


def put_many(session: Session, definitions: Mapping[str, str], *, tuner: str) -> int:
    """Store definitions by workload key, unless the key has one; return how many were new."""
    rows = [
        {"workload_digest": digest_of(key), "workload_key": key, "tuner": tuner, "definition": definition}
        for key, definition in definitions.items()
    ]
    return statements.add_missing(session, WorkloadRow, rows, key=["workload_digest"])


def definitions(session: Session, workload_keys: Sequence[str]) -> dict[str, str]:
    """By workload key, of those that have one."""
    found: dict[str, str] = {}
    for start in range(0, len(workload_keys), _KEYS_AT_ONCE):
        digests = [digest_of(key) for key in workload_keys[start : start + _KEYS_AT_ONCE]]
        query = select(WorkloadRow.workload_key, WorkloadRow.definition).where(WorkloadRow.workload_digest.in_(digests))
        found.update((key, definition) for key, definition in session.execute(query))
    return found
