"""Offered, claimed, finished or lost: whatever happens in whatever order, no workload is two claimants' at once."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from domain.jobs import Failure, JobState, Lease
from domain.shared_rounds import RoundState, SharedRound
from storage import jobs, shared_rounds
from storage.database import Database
from storage.tables import SharedRoundRow
from tests.support.storage.factories import DEVICE, NOW, TOOLCHAIN, add_job, offer

LEASE = 30.0


def led(session: Session) -> tuple[str, Lease]:
    job = add_job(session)
    return job.id, take(session, job.id, "leader")


def take(session: Session, job_id: str, leader: str, *, at: float = 0.0) -> Lease:
    now = NOW + timedelta(seconds=at)
    job = jobs.claim(session, job_id, worker_id=leader, now=now, lease_seconds=60, max_attempts=99)
    assert job is not None
    assert job.lease is not None
    return job.lease


def claim(session: Session, job_id: str, worker_id: str = "helper", *, at: float = 0.0, **changes: object):
    told: dict[str, object] = {
        "lock_place": "helper's",
        "device_key": DEVICE.key,
        "toolchains": [TOOLCHAIN.identity],
        "now": NOW + timedelta(seconds=at),
        "lease_seconds": LEASE,
    }
    return shared_rounds.claim(session, job_id, worker_id=worker_id, **{**told, **changes})  # type: ignore[arg-type]


def opened(session: Session, job_id: str, lease: Lease, workload: str = "dense", **changes: object) -> SharedRound:
    return shared_rounds.open_round(session, job_id, lease.attempt, offer(workload, **changes), now=NOW)


def test_a_round_is_claimed_once_and_says_what_it_came_to(session: Session) -> None:
    job_id, lease = led(session)
    shared = opened(session, job_id, lease)
    claimed = claim(session, job_id)
    assert claimed is not None
    assert (claimed.id, claimed.state, claimed.worker_id) == (shared.id, RoundState.CLAIMED, "helper")
    assert claimed.offer == shared.offer
    assert claim(session, job_id, "another") is None
    assert shared_rounds.finish(session, claimed, seconds=2.5, exhausted=False, default_latency=1e-3)
    (done,) = shared_rounds.of_ids(session, [shared.id])
    assert (done.state, done.seconds, done.exhausted, done.default_latency) == (RoundState.DONE, 2.5, False, 1e-3)
    assert not shared_rounds.finish(session, claimed, seconds=9.0, exhausted=True)
    assert shared_rounds.counts(session, job_id) == {"helper": 1}
    assert shared_rounds.forget(session, job_id) == 1


def test_a_failure_is_kept(session: Session) -> None:
    job_id, lease = led(session)
    opened(session, job_id, lease)
    claimed = claim(session, job_id)
    assert claimed is not None
    failure = Failure(code="engine_crashed", message="it died")
    assert shared_rounds.finish(session, claimed, seconds=1.0, exhausted=False, failure=failure)
    assert shared_rounds.get(session, claimed.id).failure == failure


def test_a_workload_is_at_work_once(database: Database) -> None:
    with database.transaction() as session:
        job_id, lease = led(session)
        opened(session, job_id, lease)
    for claimed in (False, True):
        with database.transaction() as session:
            if claimed:
                assert claim(session, job_id) is not None
        with pytest.raises(IntegrityError), database.transaction() as session:
            opened(session, job_id, lease)
    with database.transaction() as session:
        opened(session, job_id, lease, "another")
        assert shared_rounds.abandon(session, job_id) == 2
        opened(session, job_id, lease)


@pytest.mark.parametrize(
    "other",
    [
        {"device_key": "another CPU"},
        {"toolchains": ["relay another"]},
        {"toolchains": []},
        {"lock_place": "leader's"},
    ],
)
def test_who_measures_elsewhere_or_with_other_tools_takes_nothing(session: Session, other: dict[str, object]) -> None:
    job_id, lease = led(session)
    opened(session, job_id, lease)
    assert claim(session, job_id, **other) is None
    assert claim(session, job_id) is not None


def test_a_worker_takes_first_what_it_knows_and_last_what_another_does(session: Session) -> None:
    job_id, lease = led(session)
    for workload, known_to in (("theirs", "another"), ("nobody's", None), ("mine", "helper")):
        opened(session, job_id, lease, workload, known_to=known_to)
    taken = [claim(session, job_id) for _ in range(4)]
    assert [each and each.offer.workload_key for each in taken] == ["mine", "nobody's", "theirs", None]


def test_a_silent_claimant_loses_its_round_and_one_that_renews_keeps_it(session: Session) -> None:
    job_id, lease = led(session)
    ids = [opened(session, job_id, lease, workload).id for workload in ("a", "b", "c")]
    silent, alive = claim(session, job_id, "silent"), claim(session, job_id, "alive")
    assert silent is not None
    assert alive is not None
    assert shared_rounds.renew(session, alive, now=NOW + timedelta(seconds=20), lease_seconds=LEASE)
    assert shared_rounds.expire(session, ids, now=NOW + timedelta(seconds=LEASE)) == 1
    states = {each.id: each.state for each in shared_rounds.of_ids(session, ids)}
    assert states == {silent.id: RoundState.LOST, alive.id: RoundState.CLAIMED, ids[2]: RoundState.OPEN}
    assert not shared_rounds.holds(session, silent)
    assert not shared_rounds.renew(session, silent, now=NOW, lease_seconds=LEASE)
    assert not shared_rounds.finish(session, silent, seconds=1.0, exhausted=True)
    assert not shared_rounds.give_back(session, silent, seconds=1.0)
    assert shared_rounds.holds(session, alive)


def test_only_what_nobody_claimed_is_withdrawn(session: Session) -> None:
    job_id, lease = led(session)
    first, second = opened(session, job_id, lease, "a"), opened(session, job_id, lease, "b")
    claimed = claim(session, job_id)
    assert claimed is not None
    assert shared_rounds.withdraw(session, [first.id, second.id]) == [second.id]
    assert claim(session, job_id, "late") is None
    assert shared_rounds.give_back(session, claimed, seconds=1.0)
    assert shared_rounds.get(session, first.id).state is RoundState.LOST


def test_another_attempt_ends_the_claims_of_the_one_before(session: Session) -> None:
    job_id, lease = led(session)
    opened(session, job_id, lease, "a")
    opened(session, job_id, lease, "b")
    claimed = claim(session, job_id)
    assert claimed is not None
    take(session, job_id, "heir", at=61)
    # Before the heir has done anything at all.
    assert not shared_rounds.holds(session, claimed)
    assert not shared_rounds.finish(session, claimed, seconds=1.0, exhausted=False)
    assert claim(session, job_id, at=61) is None
    assert shared_rounds.abandon(session, job_id) == 2
    assert shared_rounds.get(session, claimed.id).state is RoundState.LOST


def test_a_job_that_ends_leaves_no_rounds(session: Session) -> None:
    job_id, lease = led(session)
    opened(session, job_id, lease)
    claimed = claim(session, job_id)
    opened(session, job_id, lease, "other")
    assert jobs.finish(session, job_id, lease, state=JobState.CANCELED, now=NOW)
    assert _all(session) == []
    assert not shared_rounds.finish(session, claimed, seconds=1.0, exhausted=False)


def test_time_runs_from_the_offer(session: Session) -> None:
    job_id, lease = led(session)
    shared = opened(session, job_id, lease, seconds_limit=60.0)
    left = [shared.seconds_left(shared.opened_at + timedelta(seconds=after)) for after in (-5, 0, 45, 90)]
    assert left == [60.0, 60.0, 15.0, 0.0]
    late = shared.opened_at + timedelta(seconds=90)
    assert [shared.seconds_left(late, waited=waited) for waited in (0.0, 40.0, 90.0, 200.0)] == [0.0, 10.0, 60.0, 60.0]
    assert opened(session, job_id, lease, "other", seconds_limit=None).seconds_left(NOW) is None


def test_a_job_that_is_to_stop_has_no_rounds_to_take(session: Session) -> None:
    job_id, lease = led(session)
    opened(session, job_id, lease, "a")
    opened(session, job_id, lease, "b")
    claimed = claim(session, job_id)
    assert claimed is not None
    jobs.request_cancel(session, job_id, now=NOW)
    assert claim(session, job_id) is None
    # What is finished by then is paid for.
    assert shared_rounds.holds(session, claimed)
    jobs.finish(session, job_id, lease, state=JobState.CANCELED, now=NOW)
    assert not shared_rounds.holds(session, claimed)
    assert not shared_rounds.is_led(session, job_id)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["open", "claim", "trial", "finish", "give back", "expire", "withdraw", "lead"]),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(actions=ACTIONS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_order_of_events_gives_a_workload_to_two(sqlite_database: Database, actions: list[tuple[str, int]]) -> None:
    """Whoever still believes in a claim and writes under it is checked against the one true claimant."""
    with sqlite_database.transaction() as session:
        job_id, lease = led(session)
    believed: dict[str, list[SharedRound]] = {f"w{number}": [] for number in range(4)}
    seconds = 0.0
    for action, number in actions:
        worker, workload = f"w{number}", f"workload {number}"
        seconds += 7.0
        now = NOW + timedelta(seconds=seconds)
        with sqlite_database.transaction() as session:
            known = [each.id for each in _all(session)]
            if action == "open":
                if not _at_work(session)[workload]:
                    opened(session, job_id, lease, workload)
            elif action == "claim":
                claimed = claim(session, job_id, worker, at=seconds)
                believed[worker] += [claimed] if claimed else []
            elif action in ("finish", "give back") and believed[worker]:
                last = believed[worker][-1]
                held = shared_rounds.holds(session, last)
                if action == "finish":
                    assert shared_rounds.finish(session, last, seconds=1.0, exhausted=False) == held
                else:
                    shared_rounds.give_back(session, last, seconds=1.0)
            elif action == "expire":
                shared_rounds.expire(session, known, now=now)
            elif action == "withdraw":
                shared_rounds.withdraw(session, known)
            elif action == "lead":
                seconds += 61.0
                lease = take(session, job_id, f"leader {seconds}", at=seconds)
                shared_rounds.abandon(session, job_id)
            assert max(_at_work(session).values(), default=0) <= 1
            holders = Counter(
                each.offer.workload_key
                for claims in believed.values()
                for each in claims
                if shared_rounds.holds(session, each)
            )
            assert max(holders.values(), default=0) <= 1


def _all(session: Session) -> list[SharedRound]:
    return shared_rounds.of_ids(session, session.scalars(select(SharedRoundRow.id)).all())


def _at_work(session: Session) -> Counter[str]:
    at_work = (RoundState.OPEN, RoundState.CLAIMED)
    return Counter(each.offer.workload_key for each in _all(session) if each.state in at_work)
