"""Leases go by the database's time, whatever a host's own clock says."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from domain.jobs import JobState
from storage import jobs, statements, workers
from tests.support.worker.fixtures import Bench
from worker import clock, periodic
from worker.clock import Clock

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass
class Host:
    """A database and a host with clocks of their own."""

    database: datetime = NOON
    wall: datetime = NOON
    monotonic: float = 1000.0
    connecting: float = 0.0
    """Seconds until there is a connection."""
    answering: float = 0.0
    """Seconds in which an answer is on its way."""
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(lambda: self.wall, lambda: self.monotonic)

    def wait(self, seconds: float) -> None:
        self.database += timedelta(seconds=seconds)
        self.wall += timedelta(seconds=seconds)
        self.monotonic += seconds

    def connection(self) -> None:
        """As a session has it."""
        self.wait(self.connecting)
        self.connecting = 0.0

    def ask(self) -> datetime:
        self.connection()
        told = self.database
        self.wait(self.answering)
        return told

    def synchronize(self) -> float:
        return self.clock.synchronize(self, settle_seconds=40)  # type: ignore[arg-type]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()
    monkeypatch.setattr(statements, "now", lambda _session, _wall: made.ask())
    return made


def test_until_it_is_set_a_clock_is_the_hosts(host: Host) -> None:
    host.wall += HOUR
    assert host.clock.now() == host.clock.judging() == NOON + HOUR


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_host_that_is_an_hour_off_has_the_databases_time(host: Host, ahead: timedelta) -> None:
    host.wall += ahead
    assert host.synchronize() == ahead.total_seconds()
    host.wait(7)
    assert host.clock.now() == host.clock.judging() == NOON + timedelta(seconds=7)


def test_a_hosts_clock_that_leaps_changes_nothing(host: Host) -> None:
    host.synchronize()
    host.wait(5)
    host.wall += HOUR
    assert host.clock.now() == NOON + timedelta(seconds=5)
    assert host.synchronize() == 3600
    assert host.clock.judging() == NOON + timedelta(seconds=5)


def test_when_time_itself_leaps_ahead_others_may_renew_before_they_are_judged(host: Host) -> None:
    host.synchronize()
    host.wait(10)
    host.database += HOUR
    host.synchronize()
    assert host.clock.now() == NOON + HOUR + timedelta(seconds=10)
    assert host.clock.judging() == NOON + timedelta(seconds=10)
    host.wait(10)
    host.synchronize()
    assert host.clock.judging() == NOON + timedelta(seconds=20)
    host.wait(31)
    assert host.clock.judging() == host.clock.now() == NOON + HOUR + timedelta(seconds=51)


def test_time_that_goes_back_is_taken_at_once(host: Host) -> None:
    host.synchronize()
    host.database -= HOUR
    host.synchronize()
    assert host.clock.judging() == host.clock.now() == NOON - HOUR


def test_small_corrections_are_no_leaps(host: Host) -> None:
    host.synchronize()
    host.database += timedelta(seconds=1.5)
    host.synchronize()
    assert host.clock.judging() == host.clock.now() == NOON + timedelta(seconds=1.5)


def test_a_connection_that_takes_long_is_no_leap(host: Host) -> None:
    host.synchronize()
    host.connecting = 20
    assert host.synchronize() == 0
    assert host.clock.now() == host.clock.judging() == NOON + timedelta(seconds=20)


def test_an_answer_that_takes_long_changes_nothing(host: Host) -> None:
    host.wall += HOUR
    host.synchronize()
    host.answering = 20
    assert host.synchronize() == 3600
    assert host.clock.now() == host.clock.judging() == NOON + timedelta(seconds=20)


def test_the_first_answer_counts_however_long_it_takes(host: Host) -> None:
    host.wall += HOUR
    host.answering = 2
    host.synchronize()
    assert abs(host.clock.now() - host.database) <= timedelta(seconds=1)


@pytest.fixture
def fast(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of a host that is an hour ahead of the database's, which is this one's."""
    made = Clock(lambda: datetime.now(UTC) + HOUR)
    monkeypatch.setattr(clock, "_clock", made)
    monkeypatch.setattr(statements, "now", lambda _session, _wall: datetime.now(UTC))
    return made


def test_a_host_whose_clock_is_an_hour_ahead_steals_no_lease(bench: Bench, fast: Clock) -> None:
    job_id = bench.job()
    with bench.database.transaction() as session:
        now = datetime.now(UTC)
        assert jobs.claim(session, job_id, worker_id="w", now=now, lease_seconds=60, max_attempts=3)
    thief = bench.runtime()
    assert fast.now() - datetime.now(UTC) > HOUR / 2
    thief.clean_up()
    assert abs(fast.now() - datetime.now(UTC)) < timedelta(seconds=5), "it starts with the database's time"
    assert bench.waiting() == []
    thief.look()
    job = bench.get(job_id)
    assert job.state is JobState.RUNNING
    assert job.lease
    assert job.lease.worker_id == "w"


def test_how_far_a_clock_is_off_is_told(bench: Bench, fast: Clock) -> None:
    runtime = bench.runtime()
    periodic.beat(runtime)
    with bench.database.reading() as session:
        (told,) = workers.known(session)
    assert told.clock_ahead == pytest.approx(3600, abs=5)
    assert abs(told.last_seen_at - datetime.now(UTC)) < timedelta(seconds=5)
    assert fast.now() < datetime.now(UTC) + HOUR / 2
