"""Groups of jobs, derived from the jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import FINAL_STATES, Group, JobState
from storage import paging
from storage.tables import JobRow

_Head = tuple[str, str, datetime, str]
"""Name, owner, and creation time and id of the newest job."""


def page(
    session: Session, *, owner: str | None = None, limit: int, page_token: str | None = None
) -> tuple[list[Group], str | None]:
    """Return a page of groups, newest job first. Raises InvalidPageToken."""
    newest = func.max(JobRow.created_at)
    position: Any = tuple_(newest, JobRow.group_name, JobRow.owner)
    query = _heads(owner).order_by(newest.desc(), JobRow.group_name.desc(), JobRow.owner.desc())
    if page_token is not None:
        at, identifier = paging.parse(page_token)
        name, _, whose = identifier.partition("/")
        query = query.having(position < tuple_(at, name, whose))
    heads: list[_Head] = [tuple(row) for row in session.execute(query.limit(limit + 1))]
    more = len(heads) > limit
    return _groups(session, heads[:limit]), _token(heads[limit - 1]) if more else None


def get(session: Session, name: str, *, owner: str) -> Group:
    """Return a group. Raises GroupNotFound."""
    heads: list[_Head] = [tuple(row) for row in session.execute(_heads(owner).where(JobRow.group_name == name))]
    if not heads:
        raise errors.GroupNotFound(f"there is no group {name[:80]!r}")
    return _groups(session, heads)[0]


def unfinished(session: Session, name: str, *, owner: str) -> Sequence[str]:
    """Return the ids of unfinished jobs, the last in the queue first."""
    wanted = JobRow.group_name == name, JobRow.owner == owner, JobRow.state.not_in(FINAL_STATES)
    query = select(JobRow.id).where(*wanted)
    return session.scalars(query.order_by(JobRow.priority.desc(), JobRow.created_at.desc())).all()


def _heads(owner: str | None) -> Any:
    # Ids sort by creation time.
    heads = select(JobRow.group_name, JobRow.owner, func.max(JobRow.created_at), func.max(JobRow.id))
    if owner is not None:
        heads = heads.where(JobRow.owner == owner)
    return heads.where(JobRow.group_name.is_not(None)).group_by(JobRow.group_name, JobRow.owner)


def _groups(session: Session, heads: Sequence[_Head]) -> list[Group]:
    names, whose = {name for name, *_ in heads}, {owner for _, owner, *_ in heads}
    query = (
        select(JobRow.group_name, JobRow.owner, JobRow.state, func.count())
        .where(JobRow.group_name.in_(names), JobRow.owner.in_(whose))
        .group_by(JobRow.group_name, JobRow.owner, JobRow.state)
    )
    counts: dict[tuple[str | None, str], dict[JobState, int]] = defaultdict(dict)
    for name, owner, state, count in session.execute(query):
        counts[name, owner][JobState(state)] = count
    return [
        Group(name=name, owner=owner, counts=counts[name, owner], newest_job=job_id, newest_at=at)
        for name, owner, at, job_id in heads
    ]


def _token(head: _Head) -> str:
    name, owner, at, _ = head
    # Names do not contain slashes.
    return paging.token_of(at, f"{name}/{owner}")
