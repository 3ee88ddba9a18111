"""Who waits for a message: what is said of them one by one, found by reading no others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, insert, select, text
from sqlalchemy.orm import Session

from domain import ids
from domain.jobs import JobState
from domain.tokens import Quota, Scope
from storage import jobs, tokens
from storage.tables import JobRow
from tests.support.storage.factories import DIGEST, NOW, add_model

SILENT_SECONDS = 60.0
PAUSE = 10.0
MAX_ATTEMPTS = 5
MANY = 3000


def token(session: Session, **quota: int) -> str:
    made, _ = tokens.create(session, name="t", owner="ann", scopes={Scope.SUBMIT}, quota=Quota(**quota), now=NOW)
    return made.id


def add_jobs(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    add_model(session)
    common = {"owner": "ann", "model_digest": DIGEST, "request": {}, "claims": 0, "attempts": 0}
    session.execute(insert(JobRow), [common | row for row in rows])


def anything(choose: random.Random, token_ids: Sequence[str | None]) -> dict[str, Any]:
    """A job in any state, also one that no worker would bring it into."""

    def some_time() -> datetime | None:
        return NOW + timedelta(seconds=choose.choice([-400, -200, -100, -60, -50, -20, -10, -1, 0, 5, 30]))

    created = some_time()
    assert created is not None
    leased = choose.random() < 0.4
    return {
        "id": ids.job(created),
        "token_id": choose.choice(token_ids),
        "priority": choose.randrange(3),
        "state": choose.choice([JobState.RUNNING, JobState.CANCELING] if leased else list(JobState)),
        "claims": choose.randrange(2),
        "attempts": choose.randrange(10),
        "created_at": created,
        "published_at": some_time() if choose.random() < 0.7 else None,
        "lease_expires_at": some_time() if leased else None,
    }


def expected(session: Session, rooms: dict[str | None, int], limit: int) -> list[str]:
    rows = sorted(session.scalars(select(JobRow)), key=lambda row: (row.priority, row.created_at, row.id))
    taken: dict[str | None, int] = {}
    found = []
    for row in rows:
        if row.state == JobState.QUEUED and is_silent(row):
            taken[row.token_id] = taken.get(row.token_id, 0) + 1
            if taken[row.token_id] <= rooms.get(row.token_id, limit):
                found.append(row.id)
        elif row.state in (JobState.RUNNING, JobState.CANCELING) and is_abandoned(row):
            found.append(row.id)
    return found[:limit]


def is_silent(row: JobRow) -> bool:
    stale = NOW - timedelta(seconds=SILENT_SECONDS)
    if row.published_at is None:
        return row.claims > 0 or row.created_at <= stale
    return row.published_at <= stale


def is_abandoned(row: JobRow) -> bool:
    if row.lease_expires_at is None:
        return False
    rest = 0.0 if row.attempts < 2 or row.attempts >= MAX_ATTEMPTS else PAUSE * 2 ** (row.attempts - 2)
    if row.lease_expires_at > NOW - timedelta(seconds=rest):
        return False
    return row.published_at is None or row.published_at < row.lease_expires_at or is_silent(row)


def waiting(session: Session, limit: int) -> list[str]:
    return jobs.waiting(
        session, now=NOW, unpublished_for=SILENT_SECONDS, limit=limit, pause=PAUSE, max_attempts=MAX_ATTEMPTS
    )


@pytest.mark.parametrize("seed", range(12))
def test_those_are_found_who_wait_and_in_their_order(session: Session, seed: int) -> None:
    choose = random.Random(seed)  # noqa: S311 - what is tried
    free, two, none = token(session, queued_jobs=900), token(session, running_jobs=2), token(session, running_jobs=1)
    add_jobs(session, [anything(choose, [None, free, two]) for _ in range(choose.choice([1, 20, 120]))])
    add_jobs(session, [{**anything(choose, [none]), "state": JobState.RUNNING}, anything(choose, [none])])
    running = session.scalars(select(JobRow.token_id).where(JobRow.state.in_([JobState.RUNNING, JobState.CANCELING])))
    taken = list(running)
    rooms = {two: max(0, 2 - taken.count(two)), none: max(0, 1 - taken.count(none))}
    for limit in (1000, 3):
        assert waiting(session, limit) == expected(session, rooms, limit)


def test_jobs_that_have_their_message_are_not_read(session: Session) -> None:
    limited = token(session, running_jobs=MANY)
    crowd = [
        {
            "id": ids.job(NOW),
            "token_id": owner,
            "priority": 5,
            "state": JobState.QUEUED,
            "created_at": NOW - timedelta(hours=1),
            "published_at": NOW,
        }
        for owner in (None, limited)
        for _ in range(MANY)
    ]
    add_jobs(session, crowd)
    silent = {**crowd[0], "id": "j-silent", "published_at": NOW - timedelta(hours=1)}
    add_jobs(session, [silent, {**silent, "id": "j-lost", "token_id": limited, "published_at": None}])
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("ANALYZE"))
    plans = explained(session)
    assert "ix_jobs_state_published_at" in plans
    assert "ix_jobs_token_id_state_published_at" in plans
    assert "SCAN jobs" not in plans
    assert "Seq Scan on jobs" not in plans
    # SQLite tells no numbers; it names the columns of an index that it searches by.
    assert "state=? AND published_at<?" in plans or "SQLite" not in plans
    removed = [int(line.rpartition(":")[2]) for line in plans.splitlines() if "Rows Removed by Filter" in line]
    assert sum(removed) < 10


def explained(session: Session) -> str:
    """How the database reads what ``waiting`` asks it."""
    asked: list[tuple[str, Any]] = []
    connection = session.connection()

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    assert waiting(session, 1000) == sorted(["j-silent", "j-lost"])
    event.remove(connection, "before_cursor_execute", note)
    is_sqlite = connection.dialect.name == "sqlite"
    prefix = "EXPLAIN QUERY PLAN " if is_sqlite else "EXPLAIN (ANALYZE, COSTS OFF) "
    plans = [connection.exec_driver_sql(prefix + statement, parameters).all() for statement, parameters in asked]
    return "\n".join(["SQLite" if is_sqlite else "", *(str(row[-1]) for plan in plans for row in plan)])
