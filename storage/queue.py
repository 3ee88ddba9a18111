"""The queue: jobs that wait for a worker, in the order in which workers claim them.

Priorities come first. Within a priority, owners take turns: first the owner with the fewest running jobs, then the one
whose latest job started longest ago, then the one whose job has waited longest. Jobs of one owner run in the order of
creation, so with a single owner each priority is a FIFO queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import merge

from sqlalchemy import ColumnElement, and_, func, or_, select, tuple_
from sqlalchemy.orm import Session

from domain.jobs import JobState
from storage import jobs, quotas, statements
from storage.tables import JobRow, digest_of

_LOCK = digest_of("the order of claims")
_FIRST_PAGE, _PAGE = 20, 500
"""Jobs read at once: usually the first one is claimed, but thousands may be unclaimable."""

_Position = tuple[datetime, str]
"""Creation time and id of a job."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Conditions for claims: times and settings of the claiming worker."""

    now: datetime
    judging: datetime
    """The time by which leases of other workers have expired."""
    pause: float = 0.0
    """Seconds that a job rests after losing its worker twice; see ``jobs.claim``."""
    max_attempts: int
    created_before: datetime | None = None
    """None for jobs of any age."""


def lock(session: Session) -> None:
    """Serialize claims, whose turns depend on each other, until the transaction ends."""
    statements.lock_digest(session, _LOCK)


def in_order(session: Session, rules: Rules) -> Iterator[str]:
    """Yield the ids of claimable jobs: queued ones, and those whose lease expired and that have rested.

    Jobs of a token at its running-job limit are omitted, as are jobs released for later. Rows are read lazily, so the
    session must stay open during the iteration.
    """
    abandoned = _abandoned(session, rules)
    may_run = _may_run(session, rules)
    for priority in _priorities(session, abandoned):
        lost = abandoned.get(priority, {})
        owners = _owners(session, priority)
        for owner, jobs_lost in lost.items():
            owners[owner] = min(owners.get(owner, jobs_lost[0][0]), jobs_lost[0][0])
        for owner in _turns(session, owners, rules):
            queued = _queued(session, and_(JobRow.priority == priority, JobRow.owner == owner, may_run))
            for _, job_id in merge(lost.get(owner, ()), queued):
                yield job_id


def _priorities(session: Session, others: Collection[int]) -> Iterator[int]:
    """Return the priorities of queued jobs and possibly others, most urgent first."""
    priority: int | None = -1
    while priority is not None:
        behind = select(func.min(JobRow.priority)).where(JobRow.state == JobState.QUEUED, JobRow.priority > priority)
        queued = session.scalar(behind)
        priority = min([each for each in (queued, *others) if each is not None and each > priority], default=None)
        if priority is not None:
            yield priority


def _owners(session: Session, priority: int) -> dict[str, datetime]:
    """Return the owners of queued jobs of a priority, with the creation time of the oldest job of each.

    Takes one index lookup per owner, however many jobs wait.
    """
    queued = and_(JobRow.state == JobState.QUEUED, JobRow.priority == priority)
    found = select(func.min(JobRow.owner).label("owner")).where(queued).cte("owners", recursive=True)
    following = select(func.min(JobRow.owner)).where(queued, JobRow.owner > found.c.owner).scalar_subquery()
    found = found.union_all(select(following).where(found.c.owner.is_not(None)))
    oldest = select(func.min(JobRow.created_at)).where(queued, JobRow.owner == found.c.owner).scalar_subquery()
    query = select(found.c.owner, oldest).where(found.c.owner.is_not(None))
    return {owner: since for owner, since in session.execute(query) if since is not None}


def _abandoned(session: Session, rules: Rules) -> dict[int, dict[str, list[_Position]]]:
    """Return jobs of dead workers by priority and owner; there is at most one for each worker."""
    query = select(JobRow).where(JobRow.state.in_(quotas.RUNNING), JobRow.lease_expires_at <= rules.judging)
    found: dict[int, dict[str, list[_Position]]] = {}
    # Sorted here, as the database might otherwise read all jobs in this order.
    for row in sorted(session.scalars(query), key=lambda row: (row.created_at, row.id)):
        if jobs.has_rested(row, rules.judging, pause=rules.pause, max_attempts=rules.max_attempts):
            found.setdefault(row.priority, {}).setdefault(row.owner, []).append((row.created_at, row.id))
    return found


def _may_run(session: Session, rules: Rules) -> ColumnElement[bool]:
    full = [token_id for token_id, room in quotas.rooms(session).items() if not room]
    conditions = [JobRow.state == JobState.QUEUED, or_(JobRow.waits_until.is_(None), JobRow.waits_until <= rules.now)]
    if full:
        conditions.append(or_(JobRow.token_id.is_(None), JobRow.token_id.not_in(full)))
    if rules.created_before is not None:
        conditions.append(JobRow.created_at <= rules.created_before)
    return and_(*conditions)


def _turns(session: Session, oldest: dict[str, datetime], rules: Rules) -> list[str]:
    """Return the owners, given with the creation time of their oldest job, in the order of their turns."""
    if len(oldest) <= 1:
        return list(oldest)
    at_work = select(JobRow.owner).where(JobRow.state.in_(quotas.RUNNING), JobRow.lease_expires_at > rules.judging)
    # Counted here, for the same reason.
    running = Counter(session.scalars(at_work))
    # One index lookup per owner, however many jobs it has.
    owner = statements.each_of(session, list(oldest))
    began = select(func.max(JobRow.started_at)).where(JobRow.owner == owner).scalar_subquery()
    served = {name: at.timestamp() if at else 0.0 for name, at in session.execute(select(owner, began))}
    return sorted(oldest, key=lambda name: (running[name], served[name], oldest[name], name))


def _queued(session: Session, condition: ColumnElement[bool]) -> Iterator[_Position]:
    query = select(JobRow.created_at, JobRow.id).where(condition).order_by(JobRow.created_at, JobRow.id)
    page = session.execute(query.limit(_FIRST_PAGE)).all()
    while page:
        yield from ((created_at, job_id) for created_at, job_id in page)
        behind = tuple_(JobRow.created_at, JobRow.id) > tuple_(*page[-1])
        page = session.execute(query.where(behind).limit(_PAGE)).all()
