"""In which order jobs are claimed: what is said of them one by one, found by reading few of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, insert, select, text
from sqlalchemy.orm import Session

from domain import ids
from domain.jobs import Budget, Job, JobRequest, JobState
from domain.tokens import Quota, Scope
from storage import codec, jobs, queue, tokens
from storage.database import Database
from storage.tables import JobRow
from tests.support.storage.factories import DIGEST, NOW, add_model
from tests.support.threads import at_once

PAUSE = 10.0
MAX_ATTEMPTS = 5
MANY = 3000
REQUEST = codec.dump(JobRequest(model_digest=DIGEST, budget=Budget(trials=64)))
AT_WORK = (JobState.RUNNING, JobState.CANCELING)


def rules(at: float = 0.0, **changes: Any) -> queue.Rules:
    now = moment(at)
    return queue.Rules(**{"now": now, "judging": now, "pause": PAUSE, "max_attempts": MAX_ATTEMPTS} | changes)


def moment(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def token(session: Session, **quota: int) -> str:
    made, _ = tokens.create(session, name="t", owner="ann", scopes={Scope.SUBMIT}, quota=Quota(**quota), now=NOW)
    return made.id


def add_jobs(session: Session, *rows: dict[str, Any]) -> None:
    add_model(session)
    common = {
        "owner": "ann",
        "token_id": None,
        "model_digest": DIGEST,
        "request": REQUEST,
        "priority": 5,
        "state": JobState.QUEUED,
        "claims": 0,
        "attempts": 0,
        "worker_id": None,
        "lease_expires_at": None,
        "waits_until": None,
        "created_at": NOW,
        "started_at": None,
    }
    session.execute(insert(JobRow), [common | row for row in rows])


def queued(name: str, at: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"id": name, "created_at": moment(at), **more}


def running(name: str, owner: str, began: float, lease: float = 60.0) -> dict[str, Any]:
    times = {"created_at": moment(began), "started_at": moment(began), "lease_expires_at": moment(lease)}
    return {"id": name, "owner": owner, "state": JobState.RUNNING, "worker_id": "w", "attempts": 1, **times}


def order(session: Session, at: float = 0.0, **changes: Any) -> list[str]:
    return list(queue.in_order(session, rules(at, **changes)))


def claim_next(session: Session, at: float) -> Job | None:
    queue.lock(session)
    job_id = next(queue.in_order(session, rules(at)), None)
    if job_id is None:
        return None
    return jobs.claim(session, job_id, worker_id="w", now=moment(at), lease_seconds=1000.0, max_attempts=MAX_ATTEMPTS)


def test_the_most_urgent_and_then_the_oldest_goes_first(session: Session) -> None:
    add_jobs(
        session, queued("late", 2), queued("early", 1), queued("urgent", 3, priority=0), queued("idle", 0, priority=9)
    )
    assert order(session) == ["urgent", "early", "late", "idle"]


def test_owners_take_turns_within_a_priority(session: Session) -> None:
    """Also where one of them was there first, with many."""
    add_jobs(session, *(queued(f"a{n}", n, owner="ann") for n in range(4)))
    add_jobs(session, *(queued(f"b{n}", 10 + n, owner="bob") for n in range(2)))
    add_jobs(session, queued("b-urgent", 20, owner="bob", priority=1))
    foreseen = queue.outlook(session, rules(), most=100)
    assert queue.outlook(session, rules(), most=3) == foreseen[:3]
    begun = []
    for at in range(7):
        job = claim_next(session, at)
        assert job
        assert job.lease
        begun.append(job.id)
        # One worker: each job has ended when the next one is claimed.
        jobs.finish(session, job.id, job.lease, state=JobState.SUCCEEDED, now=moment(at))
    assert begun == ["b-urgent", "a0", "b0", "a1", "b1", "a2", "a3"] == foreseen


def test_an_outlook_counts_what_runs(session: Session) -> None:
    """Ann has two jobs at work, so bob has two turns first; what must not run yet is left out."""
    add_jobs(session, running("1", "ann", -9), running("2", "ann", -8), queued("a", owner="ann"))
    add_jobs(session, *(queued(f"b{n}", n, owner="bob") for n in range(4)))
    add_jobs(session, queued("later", owner="bob", waits_until=moment(60)))
    assert queue.outlook(session, rules(), most=100) == ["b0", "b1", "a", "b2", "b3"]
    add_jobs(session, running("lost", "cyd", -20, lease=-15))
    assert queue.outlook(session, rules(), most=100) == ["b0", "lost", "b1", "a", "b2", "b3"]


@pytest.mark.parametrize(
    ("at_work", "expected"),
    [
        ([], ["a", "b", "c"]),
        ([running("1", "ann", -10)], ["b", "c", "a"]),
        ([running("1", "ann", -9), running("2", "bob", -10)], ["c", "b", "a"]),
        ([running("1", "ann", -9), running("2", "bob", -10), running("3", "cyd", -8), running("4", "bob", -7)], "acb"),
        # Whoever has lost its worker is not at work: it is the oldest of its owner's jobs.
        ([running("1", "ann", -9, lease=-1)], ["b", "c", "1", "a"]),
    ],
)
def test_whose_turn_it_is(session: Session, at_work: list[dict[str, Any]], expected: Sequence[str]) -> None:
    """The owner with the fewest jobs at work, then the one served longest ago, then the one who waits longest."""
    add_jobs(session, queued("a", 1, owner="ann"), queued("b", 2, owner="bob"), queued("c", 3, owner="cyd"), *at_work)
    assert order(session) == list(expected)


def test_jobs_of_a_token_that_runs_as_many_as_it_may_are_passed_over(session: Session) -> None:
    one, two = token(session, running_jobs=1), token(session, running_jobs=2)
    add_jobs(session, {**running("1", "ann", -1), "token_id": one}, {**running("2", "ann", -1), "token_id": two})
    add_jobs(session, queued("full", 1, token_id=one), queued("room", 2, token_id=two), queued("free", 3))
    assert order(session) == ["room", "free"]


def test_a_job_given_back_for_later_waits_until_then(session: Session) -> None:
    add_jobs(session, queued("later", waits_until=moment(60)), queued("now", 1))
    assert order(session) == ["now"]
    assert order(session, 60) == ["later", "now"]


def test_young_jobs_may_be_left_out(session: Session) -> None:
    add_jobs(session, queued("old", 1), queued("young", 2))
    assert order(session, 3, created_before=moment(1)) == ["old"]


def anything(choose: random.Random, token_ids: Sequence[str | None]) -> dict[str, Any]:
    """A job in any state, also one that no worker would bring it into."""

    def some_time() -> datetime:
        return moment(choose.choice([-400, -200, -100, -60, -50, -20, -10, -1, 0, 5, 30]))

    created, leased = some_time(), choose.random() < 0.4
    return {
        "id": ids.job(created),
        "owner": choose.choice(["ann", "bob", "cyd"]),
        "token_id": choose.choice(token_ids),
        "priority": choose.randrange(3),
        "state": choose.choice(AT_WORK if leased else list(JobState)),
        "claims": choose.randrange(2),
        "attempts": choose.randrange(10),
        "created_at": created,
        "started_at": some_time() if leased or choose.random() < 0.3 else None,
        "waits_until": some_time() if choose.random() < 0.3 else None,
        "lease_expires_at": some_time() if leased else None,
    }


def expected(session: Session, full: set[str | None]) -> list[str]:
    rows = list(session.scalars(select(JobRow)))
    alive = [row for row in rows if row.state in AT_WORK and row.lease_expires_at and row.lease_expires_at > NOW]
    at_work = Counter(row.owner for row in alive)
    began: dict[str, datetime] = {}
    for row in rows:
        if row.started_at:
            began[row.owner] = max(began.get(row.owner, row.started_at), row.started_at)
    oldest: dict[tuple[int, str], datetime] = {}
    waiting = [row for row in rows if row.state == JobState.QUEUED or is_abandoned(row)]
    for row in waiting:
        line = (row.priority, row.owner)
        oldest[line] = min(oldest.get(line, row.created_at), row.created_at)

    def turn(row: JobRow) -> tuple[Any, ...]:
        served = began.get(row.owner, moment(-(10**8)))
        owner = (at_work[row.owner], served, oldest[row.priority, row.owner], row.owner)
        return (row.priority, *owner, row.created_at, row.id)

    may = [row for row in waiting if row.state in AT_WORK or may_run(row, full)]
    return [row.id for row in sorted(may, key=turn)]


def may_run(row: JobRow, full: set[str | None]) -> bool:
    return row.token_id not in full and (row.waits_until is None or row.waits_until <= NOW)


def is_abandoned(row: JobRow) -> bool:
    if row.state not in AT_WORK or row.lease_expires_at is None:
        return False
    rest = 0.0 if row.attempts < 2 or row.attempts >= MAX_ATTEMPTS else PAUSE * 2 ** (row.attempts - 2)
    return row.lease_expires_at <= moment(-rest)


@pytest.mark.parametrize("seed", range(12))
def test_all_that_may_be_claimed_are_found_in_their_order(session: Session, seed: int) -> None:
    choose = random.Random(seed)  # noqa: S311 - what is tried
    limits = {None: 10**6, token(session, queued_jobs=900): 10**6, token(session, running_jobs=2): 2}
    add_jobs(session, *(anything(choose, list(limits)) for _ in range(choose.choice([1, 20, 120]))))
    taken = Counter(session.scalars(select(JobRow.token_id).where(JobRow.state.in_(AT_WORK))))
    assert order(session) == expected(session, {each for each, most in limits.items() if taken[each] >= most})


def test_the_first_is_found_by_an_index_and_none_is_hidden(session: Session) -> None:
    """However many wait: one worker cannot do the first three thousand, and reads on."""
    add_jobs(session, *(queued(f"j-{number:05}", number) for number in range(MANY)))
    add_jobs(session, *(queued(f"j-ended-{number:05}", number, state=JobState.FAILED) for number in range(MANY)))
    add_jobs(session, running("lost", "ann", -1, lease=-1), running("bobs", "bob", 0), queued("bob-1", owner="bob"))
    session.execute(text("ANALYZE"))
    plans = explained(session)
    assert "ix_jobs_queue" in plans
    assert "SCAN jobs" not in plans
    assert "Seq Scan on jobs" not in plans
    assert order(session) == ["lost", *(f"j-{number:05}" for number in range(MANY)), "bob-1"]


def explained(session: Session) -> str:
    """How the database reads what a claim asks it."""
    asked: list[tuple[str, Any]] = []
    connection = session.connection()

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    assert next(queue.in_order(session, rules())) == "lost"
    event.remove(connection, "before_cursor_execute", note)
    prefix = "EXPLAIN QUERY PLAN " if connection.dialect.name == "sqlite" else "EXPLAIN "
    plans = [connection.exec_driver_sql(prefix + statement, parameters).all() for statement, parameters in asked]
    return "\n".join(str(row[-1]) for plan in plans for row in plan)


def test_workers_that_look_at_once_claim_different_jobs_and_keep_turns(database: Database) -> None:
    with database.transaction() as session:
        add_jobs(session, *(queued(f"a{n}", n, owner="ann") for n in range(20)))
        add_jobs(session, *(queued(f"b{n}", 50 + n, owner="bob") for n in range(20)))

    def take(_number: int) -> str:
        with database.transaction() as session:
            job = claim_next(session, 100)
        assert job
        return job.id

    assert sorted(at_once(take)) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]
