"""The end of each job's engine log, which is a file on the worker's host, for the API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from storage import statements
from storage.tables import JobLogRow, JobRow

MOST_BYTES = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class Tail:
    start: int
    """Offset of the text in the whole log, in bytes; earlier text is not stored."""
    content: bytes

    @property
    def size(self) -> int:
        """Size of the whole log in bytes."""
        return self.start + len(self.content)

    def then(self, text: bytes, *, left_out: int = 0) -> Tail:
        """Return the log with more text appended, before which ``left_out`` bytes were omitted."""
        end = self.size + left_out + len(text)
        kept = (text if left_out else self.content + text)[-MOST_BYTES:]
        return Tail(start=end - len(kept), content=kept)


EMPTY = Tail(start=0, content=b"")


def begin(session: Session, job_id: str, attempt: int) -> Tail:
    """Return the log of earlier attempts, which no longer write."""
    older = update(JobLogRow).where(JobLogRow.job_id == job_id, JobLogRow.attempt < attempt)
    statements.changed(session, older.values(attempt=attempt))
    return read(session, job_id)


def keep(session: Session, job_id: str, attempt: int, tail: Tail) -> bool:
    """Store the log; returns False if a later attempt has started."""
    values = {"attempt": attempt, "start": tail.start, "size": tail.size, "content": tail.content}
    ours = update(JobLogRow).where(JobLogRow.job_id == job_id, JobLogRow.attempt <= attempt)
    if statements.changed(session, ours.values(**values)):
        return True
    return statements.add_missing(session, JobLogRow, [{"job_id": job_id, **values}], key=["job_id"]) == 1


def size(session: Session, job_id: str) -> int:
    """Return the known size of the log in bytes; cheaper than reading it."""
    return session.scalar(select(JobLogRow.size).where(JobLogRow.job_id == job_id)) or 0


def read(session: Session, job_id: str) -> Tail:
    """Return the log; empty if unknown."""
    row = session.execute(select(JobLogRow.start, JobLogRow.content).where(JobLogRow.job_id == job_id)).first()
    return EMPTY if row is None else Tail(start=row.start, content=row.content)


def forget(session: Session, *, ended_before: datetime, most_jobs: int) -> int:
    """Remove the logs of jobs that ended before a time, a limited number at once; returns that number."""
    old = select(JobLogRow.job_id).join(JobRow, JobRow.id == JobLogRow.job_id).where(JobRow.finished_at < ended_before)
    found = list(session.scalars(old.limit(most_jobs)))
    return statements.changed(session, delete(JobLogRow).where(JobLogRow.job_id.in_(found)))
