"""No token uses more than it may, and no job is lost because of it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from domain import errors
from domain.data_sets import DataFacts
from domain.digests import BlobDigest, FileDigest
from domain.jobs import Budget, Job, JobRequest, JobState
from domain.tokens import Principal, Quota, Scope
from storage import artifacts, data_sets, jobs, owners, queue, quotas, tokens
from storage.database import Database
from storage.tables import digest_of
from tests.support.storage.factories import DIGEST, NOW, add_model, artifact
from tests.support.threads import THREADS, at_once

REQUEST = JobRequest(model_digest=DIGEST, budget=Budget(trials=64))


def token(session: Session, *, owner: str = "ann", **quota: int) -> str:
    made, _ = tokens.create(session, name="t", owner=owner, scopes={Scope.SUBMIT}, quota=Quota(**quota), now=NOW)
    return made.id


def add(session: Session, token_id: str | None, *, priority: int = 5, at: float = 0) -> str:
    add_model(session)
    request = JobRequest(model_digest=DIGEST, budget=Budget(trials=64), priority=priority)
    return jobs.create(session, request, now=moment(at), owner="ann", token_id=token_id).id


def claim(session: Session, job_id: str, *, at: float = 0, lease: float = 60) -> Job | None:
    return jobs.claim(session, job_id, worker_id="w", now=moment(at), lease_seconds=lease, max_attempts=9)


def end(session: Session, job: Job) -> None:
    assert job.lease
    assert jobs.finish(session, job.id, job.lease, state=JobState.SUCCEEDED, now=NOW)


def waiting(session: Session, at: float) -> list[str]:
    return list(queue.in_order(session, queue.Rules(now=moment(at), judging=moment(at), max_attempts=9)))


def moment(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_more_jobs_than_may_wait_are_refused(session: Session) -> None:
    limited, free = token(session, queued_jobs=2), token(session)
    first = add(session, limited)
    add(session, limited)
    with pytest.raises(errors.QuotaExceeded) as caught:
        add(session, limited)
    assert caught.value.details == {"quota": "queued_jobs", "limit": 2}
    assert caught.value.message.endswith("2 queued jobs")
    one = token(session, queued_jobs=1)
    add(session, one)
    with pytest.raises(errors.QuotaExceeded, match=r"1 queued job$"):
        add(session, one)
    for other in (free, None):
        assert add(session, other)
    assert claim(session, first)
    assert add(session, limited)


def test_two_requests_at_once_do_not_both_take_the_last_place(database: Database) -> None:
    with database.transaction() as session:
        add_model(session)
        limited = token(session, queued_jobs=3)

    def create(_number: int) -> bool:
        try:
            with database.transaction() as session:
                return bool(jobs.create(session, REQUEST, now=NOW, owner="ann", token_id=limited))
        except errors.QuotaExceeded:
            return False

    assert sum(at_once(create)) == 3
    with database.reading() as session:
        assert quotas.jobs_of(session, limited, JobState.QUEUED) == 3


def test_two_workers_at_once_do_not_both_take_the_last_place(database: Database) -> None:
    with database.transaction() as session:
        limited = token(session, running_jobs=3)
        queued = [add(session, limited) for _ in range(THREADS)]

    def take(number: int) -> bool:
        with database.transaction() as session:
            return claim(session, queued[number]) is not None

    assert sum(at_once(take)) == 3
    with database.reading() as session:
        assert len(quotas.held(session, queued)) == THREADS - 3


def test_a_job_beyond_the_limit_waits_until_there_is_room(session: Session) -> None:
    limited = token(session, running_jobs=1)
    first, second = add(session, limited), add(session, limited)
    running = claim(session, first)
    assert running
    assert claim(session, second) is None
    assert jobs.get(session, second).state is JobState.QUEUED
    assert waiting(session, 1000) == [first]  # its lease ran out; the other has no room
    end(session, running)
    assert waiting(session, 1) == [second]
    assert claim(session, second)


def test_as_soon_as_there_is_room_all_may_be_claimed_next(session: Session) -> None:
    limited = token(session, running_jobs=1)
    running = claim(session, add(session, limited))
    assert running
    many = [add(session, limited, at=n) for n in range(4)]
    urgent = add(session, limited, priority=0, at=9)
    free = [add(session, token(session), at=5), add(session, None, at=6)]
    assert waiting(session, 10) == free
    end(session, running)
    assert waiting(session, 10) == [urgent, *many, *free]


def test_a_job_that_lost_its_worker_keeps_its_place(session: Session) -> None:
    limited = token(session, running_jobs=1)
    first, second = add(session, limited), add(session, limited)
    assert claim(session, first, lease=10)
    assert claim(session, second, at=20) is None
    assert claim(session, first, at=20)
    assert claim(session, second, at=21) is None


def test_jobs_that_are_being_canceled_count_and_those_given_back_do_not(session: Session) -> None:
    limited = token(session, running_jobs=1)
    first, second = add(session, limited), add(session, limited)
    running = claim(session, first)
    assert running
    assert running.lease
    jobs.request_cancel(session, first, now=NOW)
    assert claim(session, second) is None
    assert jobs.release(session, first, running.lease, now=NOW)
    assert claim(session, second)


def test_revoked_tokens_jobs_go_on(session: Session) -> None:
    limited = token(session, running_jobs=1)
    job_id = add(session, limited)
    tokens.revoke(session, limited, now=NOW)
    assert claim(session, job_id)


def test_stored_bytes_are_the_owners_models_and_artifacts(session: Session) -> None:
    job_id = add(session, None)
    assert quotas.stored_bytes(session, "ann") == 0
    assert owners.add_model(session, DIGEST, "ann", now=NOW)
    assert not owners.add_model(session, DIGEST, "ann", now=NOW)
    owners.add_model(session, DIGEST, "bob", now=NOW)
    artifacts.add(session, artifact(job_id))
    assert quotas.stored_bytes(session, "ann") == 585_532 + 1_000
    assert quotas.stored_bytes(session, "bob") == 585_532
    assert quotas.sizes_of_uploads(session, "bob") == {585_532}
    bob = Principal(owner="bob", scopes=frozenset(), quota=Quota(stored_bytes=585_540))
    quotas.check_stored(session, bob, 8)
    with pytest.raises(errors.QuotaExceeded):
        quotas.check_stored(session, bob, 9)
    quotas.check_stored(session, Principal(owner="bob", scopes=frozenset()), 10**15)
    rows = data_sets.add(
        session, digest=BlobDigest(FileDigest("d" * 64)), name="val", owner="bob", size_bytes=9, now=NOW,
        facts=DataFacts(arrays=(), rows=1),
    )  # fmt: skip
    assert quotas.stored_bytes(session, "bob") == 585_532 + 9
    assert quotas.sizes_of_uploads(session, "bob") == {585_532, 9}
    data_sets.delete(session, rows, now=NOW)
    assert quotas.stored_bytes(session, "bob") == 585_532


def test_two_tokens_of_one_owner_at_once_do_not_both_take_the_last_bytes(database: Database) -> None:
    with database.transaction() as session:
        digests = [digest_of(f"model {number}") for number in range(THREADS)]
        sizes = {add_model(session, digest).size_bytes for digest in digests}
        assert sizes == {585_532}
        room = Quota(stored_bytes=3 * 585_532)
        made = [token(session, stored_bytes=3 * 585_532) for _ in digests]

    def store(number: int) -> bool:
        principal = Principal(owner="ann", scopes=frozenset(), quota=room, token_id=made[number])
        try:
            with database.transaction() as session:
                quotas.lock(session, principal)
                quotas.check_stored(session, principal, 585_532)
                return owners.add_model(session, digests[number], "ann", now=NOW)
        except errors.QuotaExceeded:
            return False

    assert sum(at_once(store)) == 3


def test_owners_do_not_wait_for_one_another(postgresql_database: Database) -> None:
    ann, bob = (Principal(owner=name, scopes=frozenset()) for name in ("ann", "bob"))
    with postgresql_database.transaction() as session:
        for principal in (ann, bob):
            token(session, owner=principal.owner)
    with postgresql_database.transaction() as session, postgresql_database.transaction() as other:
        quotas.lock(session, bob)
        other.execute(text("SET LOCAL lock_timeout = '1s'"))
        quotas.lock(other, ann)
