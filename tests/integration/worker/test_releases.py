"""Workers of one release beside jobs and a database of another."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from sqlalchemy import text, update

from domain import release
from domain.jobs import JobState
from storage import workers
from storage.tables import JobRow
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO
from worker import engines, periodic
from worker.runtime import Runtime


@pytest.fixture(autouse=True)
def _engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "ask_hello", lambda *_: HELLO)


def ask_for(bench: Bench, job_id: str, **more: Any) -> None:
    """Make the job's request what a newer release would have stored."""
    with bench.database.transaction() as session:
        row = session.get(JobRow, job_id)
        assert row
        session.execute(update(JobRow).where(JobRow.id == job_id).values(request={**row.request, **more}))


def migrate_further(bench: Bench) -> None:
    with bench.database.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))


@pytest.mark.parametrize(
    "more",
    [
        {"power_cap_watts": 65},
        {"budget": {"trials": 32, "seconds": None, "joules": 4}},
        {"tuner": "annealing"},
        {"measure": {"repeat": "often"}},
    ],
    ids=["field", "nested field", "tuner", "value"],
)
def test_a_job_that_asks_for_what_a_worker_does_not_know_is_left_to_others(bench: Bench, more: dict[str, Any]) -> None:
    job_id, plain = bench.job(), bench.job()
    ask_for(bench, job_id, **more)
    worker = bench.runtime()
    periodic.beat(worker)
    worker.look()
    with bench.database.reading() as session:
        row = session.get(JobRow, job_id)
        assert row
        assert (row.state, row.attempts, row.failure) == (JobState.QUEUED, 0, None)
    assert bench.get(plain).state is JobState.SUCCEEDED, "and holds up nobody"


def test_a_job_of_an_older_release_is_run(bench: Bench) -> None:
    job_id = bench.job()
    with bench.database.transaction() as session:
        row = session.get(JobRow, job_id)
        assert row
        oldest = {name: row.request[name] for name in ("model_digest", "budget")}
        session.execute(update(JobRow).where(JobRow.id == job_id).values(request=oldest))
    worker = bench.runtime()
    periodic.beat(worker)
    worker.look()
    assert bench.get(job_id).state is JobState.SUCCEEDED


def test_a_worker_under_which_the_database_is_migrated_takes_nothing_more_and_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    job_id, worker = bench.job(), bench.runtime()
    worker.clean_up()
    periodic.beat(worker)
    assert sent == []
    migrate_further(bench)
    worker.look()
    assert (bench.get(job_id).state, bench.get(job_id).attempts) == (JobState.QUEUED, 0)
    periodic.beat(worker)
    assert sent == [(os.getpid(), signal.SIGTERM)]


def test_a_worker_tells_its_release(bench: Bench) -> None:
    worker: Runtime = bench.runtime()
    periodic.beat(worker)
    with bench.database.reading() as session:
        assert [one.release for one in workers.known(session)] == [release.VERSION]
