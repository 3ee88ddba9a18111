"""The queue: jobs that wait for a worker, in the order in which workers claim them.

Priorities come first. Within a priority, owners take turns: first the owner with the fewest running jobs, then the one
whose latest job started longest ago, then the one whose job has waited longest. Jobs of one owner run in the order of
creation, so with a single owner each priority is a FIFO queue.

Parts are not in the queue: the worker that runs their job claims them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge

from sqlalchemy import ColumnElement, and_, func, or_, select, tuple_
from sqlalchemy.orm import Session

from domain.jobs import LEASED_STATES, JobState
from storage import jobs, quotas, statements
from storage.tables import JobRow, digest_of

_LOCK = digest_of("the order of claims")
_FIRST_PAGE, _PAGE = 20, 500
"""Jobs read at once: usually the first one is claimed, but thousands may be unclaimable."""

_WAITING = (JobRow.state == JobState.QUEUED, JobRow.part_of.is_(None))

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
    for turns in _turns_by_priority(session, rules):
        for turn in turns:
            yield from turn.jobs


@dataclass(frozen=True, kw_only=True)
class _Turn:
    owner: str
    running: int
    """Number of the owner's running jobs; 0 if nobody else waits."""
    jobs: Iterator[str]
    """Ids of the owner's claimable jobs, in order."""


def _turns_by_priority(session: Session, rules: Rules) -> Iterator[list[_Turn]]:
    """Yield the owners with claimable jobs in the order of their turns, for each priority, most urgent first."""
    abandoned = _abandoned(session, rules)
    may_run = _may_run(session, rules)
    for priority in _priorities(session, abandoned):
        lost = abandoned.get(priority, {})
        owners = _owners(session, priority)
        for owner, jobs_lost in lost.items():
            owners[owner] = min(owners.get(owner, jobs_lost[0][0]), jobs_lost[0][0])
        yield [
            _Turn(
                owner=owner,
                running=running,
                jobs=_ids(
                    lost.get(owner, ()),
                    _queued(session, and_(JobRow.priority == priority, JobRow.owner == owner, may_run)),
                ),
            )
            for owner, running in _turns(session, owners, rules)
        ]


def _ids(lost: Sequence[_Position], queued: Iterator[_Position]) -> Iterator[str]:
    for _, job_id in merge(lost, queued):
        yield job_id


def _priorities(session: Session, others: Collection[int]) -> Iterator[int]:
    """Return the priorities of queued jobs and possibly others, most urgent first."""
    priority: int | None = -1
    while priority is not None:
        behind = select(func.min(JobRow.priority)).where(*_WAITING, JobRow.priority > priority)
        queued = session.scalar(behind)
        priority = min([each for each in (queued, *others) if each is not None and each > priority], default=None)
        if priority is not None:
            yield priority


def _owners(session: Session, priority: int) -> dict[str, datetime]:
    """Return the owners of queued jobs of a priority, with the creation time of the oldest job of each.

    Takes one index lookup per owner, however many jobs wait.
    """
    queued = and_(*_WAITING, JobRow.priority == priority)
    found = select(func.min(JobRow.owner).label("owner")).where(queued).cte("owners", recursive=True)
    following = select(func.min(JobRow.owner)).where(queued, JobRow.owner > found.c.owner).scalar_subquery()
    found = found.union_all(select(following).where(found.c.owner.is_not(None)))
    oldest = select(func.min(JobRow.created_at)).where(queued, JobRow.owner == found.c.owner).scalar_subquery()
    query = select(found.c.owner, oldest).where(found.c.owner.is_not(None))
    return {owner: since for owner, since in session.execute(query) if since is not None}


def _abandoned(session: Session, rules: Rules) -> dict[int, dict[str, list[_Position]]]:
    """Return jobs of dead workers by priority and owner; there is at most one for each worker."""
    running = (JobRow.state.in_(LEASED_STATES), JobRow.part_of.is_(None))
    query = select(JobRow).where(*running, JobRow.lease_expires_at <= rules.judging)
    found: dict[int, dict[str, list[_Position]]] = {}
    # Sorted here, as the database might otherwise read all jobs in this order.
    for row in sorted(session.scalars(query), key=lambda row: (row.created_at, row.id)):
        if jobs.has_rested(row, rules.judging, pause=rules.pause, max_attempts=rules.max_attempts):
            found.setdefault(row.priority, {}).setdefault(row.owner, []).append((row.created_at, row.id))
    return found


def _may_run(session: Session, rules: Rules) -> ColumnElement[bool]:
    full = [token_id for token_id, room in quotas.rooms(session).items() if not room]
    conditions = [*_WAITING, or_(JobRow.waits_until.is_(None), JobRow.waits_until <= rules.now)]
    if full:
        conditions.append(or_(JobRow.token_id.is_(None), JobRow.token_id.not_in(full)))
    if rules.created_before is not None:
        conditions.append(JobRow.created_at <= rules.created_before)
    return and_(*conditions)


def _turns(session: Session, oldest: dict[str, datetime], rules: Rules) -> list[tuple[str, int]]:
    """Return the owners, given with the creation time of their oldest job, in the order of their turns.

    With the number of their running jobs, which is not counted if there is only one owner.
    """
    if len(oldest) <= 1:
        return [(owner, 0) for owner in oldest]
    at_work = select(JobRow.owner).where(
        JobRow.state.in_(LEASED_STATES), JobRow.part_of.is_(None), JobRow.lease_expires_at > rules.judging
    )
    # Counted here, for the same reason.
    running = Counter(session.scalars(at_work))
    # One index lookup per owner, however many jobs it has.
    owner = statements.each_of(session, list(oldest))
    began = select(func.max(JobRow.started_at)).where(JobRow.owner == owner).scalar_subquery()
    served = {name: at.timestamp() if at else 0.0 for name, at in session.execute(select(owner, began))}
    order = sorted(oldest, key=lambda name: (running[name], served[name], oldest[name], name))
    return [(owner, running[owner]) for owner in order]


def _queued(session: Session, condition: ColumnElement[bool]) -> Iterator[_Position]:
    query = select(JobRow.created_at, JobRow.id).where(condition).order_by(JobRow.created_at, JobRow.id)
    page = session.execute(query.limit(_FIRST_PAGE)).all()
    while page:
        yield from ((created_at, job_id) for created_at, job_id in page)
        behind = tuple_(JobRow.created_at, JobRow.id) > tuple_(*page[-1])
        page = session.execute(query.where(behind).limit(_PAGE)).all()


def outlook(session: Session, rules: Rules, *, most: int) -> list[str]:
    """Return the first ids of claimable jobs, ``most`` of them, in the order in which they will start.

    While ``in_order`` gives the order of the next claim, each claim here counts for the following turns of the owners.
    It assumes that no running job ends and that any worker can run any job.
    """
    found: list[str] = []
    claims: Counter[str] = Counter()
    latest: dict[str, int] = {}
    for turns in _turns_by_priority(session, rules):
        waiting = {turn.owner: turn for turn in turns}
        while waiting and len(found) < most:
            # An owner without a claim here comes before those with one; all of these began after any running job.
            turn = min(
                waiting.values(),
                key=lambda turn: (turn.running + claims[turn.owner], latest.get(turn.owner, -1), turns.index(turn)),
            )
            job_id = next(turn.jobs, None)
            if job_id is None:
                del waiting[turn.owner]
                continue
            latest[turn.owner] = len(found)
            claims[turn.owner] += 1
            found.append(job_id)
        if len(found) >= most:
            break
    return found
