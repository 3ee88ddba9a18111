"""What the workers, jobs and readers of a fleet ask the database all the time. Part of ``./run bench records``.

Each question is asked as a worker or the API asks it, in a transaction of its own; beside its time stands how often
that many workers ask it, and so how much of one connection all of them take.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from bench.fleet import Fleet
from domain.jobs import JobState, Lease
from domain.records import Record, RecordKey
from storage import counts, coverage, job_logs, jobs, rates, records, tuning_tasks, webhooks, workers
from storage.database import Database
from storage.tables import digest_of

_TRIALS_AT_ONCE = 16
_LEASE_SECONDS = 30.0
_LOG_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class _Question:
    ask: Callable[[Session, random.Random], object]
    writes: bool = False
    a_second: float = 0.0
    """How often all workers together ask it, with the settings' defaults; 0: as often as people or jobs come."""


def measure(database: Database, fleet: Fleet, *, repeat: int, seed: int) -> dict[str, Any]:
    """Milliseconds of each question, and the connections that all workers together keep busy with it."""
    choose = random.Random(seed)  # noqa: S311 - what to ask for
    found: dict[str, Any] = {}
    for name, question in _questions(fleet).items():
        timed = [_timed(database, question, choose) for _ in range(repeat)]
        took, spent = (sorted(times) for times in zip(*timed, strict=True))
        median = took[len(took) // 2]
        found[name] = {
            "median": round(median, 3),
            "p99": round(took[int(len(took) * 0.99)], 3),
            "cpu_median": round(spent[len(spent) // 2], 3),
        }
        if question.a_second:
            found[name] |= {
                "a_second": round(question.a_second, 1),
                "connections_busy": round(question.a_second * median / 1e3, 3),
            }
    return found


def _questions(fleet: Fleet) -> Mapping[str, _Question]:
    return {**_of_idle_workers(fleet), **_of_busy_workers(fleet), **_of_new_jobs(fleet), **_of_people()}


def _of_idle_workers(fleet: Fleet) -> Mapping[str, _Question]:
    many = float(fleet.size.workers)

    def beat(session: Session, choose: random.Random) -> object:
        return workers.beat(session, replace(choose.choice(fleet.workers), last_seen_at=datetime.now(UTC)))

    def waiting(session: Session, _: random.Random, unpublished_for: float = 3600.0) -> object:
        return jobs.waiting(session, now=datetime.now(UTC), unpublished_for=unpublished_for)

    return {
        "a worker's sign of life": _Question(ask=beat, writes=True, a_second=many / 10),
        "the reaper's look for jobs without a message": _Question(ask=waiting, a_second=many / 3),
        "the same, when every queued job needs one": _Question(
            ask=lambda session, choose: waiting(session, choose, unpublished_for=60.0)
        ),
        "a look for webhooks to send": _Question(
            ask=lambda session, _: webhooks.due(session, now=datetime.now(UTC), limit=500), a_second=many / 3
        ),
    }


def _of_busy_workers(fleet: Fleet) -> Mapping[str, _Question]:
    many = float(fleet.size.workers)
    key = RecordKey(workload_key=fleet.workload(1), **fleet.identity)
    full_log = _full_log()

    def renew(session: Session, choose: random.Random) -> object:
        job_id, lease = choose.choice(fleet.running)
        return jobs.renew(session, job_id, lease, now=datetime.now(UTC), lease_seconds=_LEASE_SECONDS)

    def keep_log(session: Session, choose: random.Random) -> object:
        job_id, lease = choose.choice(fleet.running)
        return job_logs.keep(session, job_id, lease.attempt, full_log)

    def store(session: Session, choose: random.Random) -> object:
        job_id, lease = choose.choice(fleet.running)
        found = [_trial(key, job_id, lease, choose) for _ in range(_TRIALS_AT_ONCE)]
        records.add(session, found)
        return jobs.set_progress(session, job_id, lease, trials_done=16, trials_planned=640)

    return {
        "a look whether a job is canceled": _Question(
            ask=lambda session, choose: jobs.get(session, choose.choice(fleet.running)[0]), a_second=many
        ),
        "renewing a lease": _Question(ask=renew, writes=True, a_second=many * 4 / _LEASE_SECONDS),
        f"storing {_TRIALS_AT_ONCE} trials and the progress": _Question(
            ask=store, writes=True, a_second=many * 5 / _TRIALS_AT_ONCE
        ),
        "the end of an engine's log, if it is full and grows all the time": _Question(
            ask=keep_log, writes=True, a_second=many / _LOG_SECONDS
        ),
    }


def _of_new_jobs(fleet: Fleet) -> Mapping[str, _Question]:
    now, to_claim = datetime.now(UTC), iter(fleet.queued)

    def claim(session: Session, choose: random.Random) -> object:
        return jobs.claim(
            session,
            next(to_claim),
            worker_id=choose.choice(fleet.workers).id,
            now=now,
            lease_seconds=_LEASE_SECONDS,
            max_attempts=5,
        )

    def elsewhere(session: Session, choose: random.Random) -> object:
        job_id, _ = choose.choice(fleet.running)
        return tuning_tasks.tuned_elsewhere(session, job_id, fleet.model(choose), now=now, **fleet.identity)

    def pace(session: Session, _: random.Random) -> object:
        identity = {"device_key": fleet.device.key, "toolchain": fleet.toolchain.identity}
        return rates.seconds_a_trial(session, tuner="autotvm", **identity)

    def rare_pace(session: Session, _: random.Random) -> object:
        return rates.seconds_a_trial(session, device_key="another", toolchain="another", tuner="autotvm")

    return {
        "claiming a queued job": _Question(ask=claim, writes=True),
        "coverage of a model's 43 workloads": _Question(
            ask=lambda session, choose: coverage.find(session, fleet.model(choose), **fleet.identity)
        ),
        "who tunes a model's 43 workloads now": _Question(ask=elsewhere),
        "seconds a trial takes on a device": _Question(ask=pace),
        "the same of a device that no job ran on": _Question(ask=rare_pace),
    }


def _of_people() -> Mapping[str, _Question]:
    """And of Prometheus."""
    alive = datetime.now(UTC) - timedelta(minutes=1)

    def scrape(session: Session, _: random.Random) -> object:
        newest = counts.newest_record(session)
        return [
            counts.jobs_by_state(session),
            counts.queued_by_priority(session),
            counts.rounds_at_work(session),
            counts.workers(session, seen_since=alive),
            counts.pending_deliveries(session),
            counts.trials(session, after=newest - 1000, to=newest),
        ]

    return {
        "a page of 50 jobs": _Question(ask=lambda session, _: jobs.page(session, limit=50)),
        "a page of 50 queued jobs": _Question(
            ask=lambda session, _: jobs.page(session, limit=50, state=JobState.QUEUED)
        ),
        "all living workers": _Question(ask=lambda session, _: workers.known(session, seen_since=alive)),
        "what a scrape of /metrics counts": _Question(ask=scrape),
    }


def _full_log() -> job_logs.Tail:
    numbers = random.Random(1)  # noqa: S311 - what an engine prints
    lines = [f"[12:00:00] Sending sample {numbers.getrandbits(64):x} to the builder #{each}" for each in range(6000)]
    return job_logs.EMPTY.then("\n".join(lines).encode())


def _timed(database: Database, question: _Question, choose: random.Random) -> tuple[float, float]:
    """Milliseconds, and those of them that this process computed: with SQLite, all but waiting for the disk."""
    started, busy = time.perf_counter(), time.process_time()
    with database.transaction() if question.writes else database.reading() as session:
        question.ask(session, choose)
    return 1e3 * (time.perf_counter() - started), 1e3 * (time.process_time() - busy)


def _trial(key: RecordKey, job_id: str, lease: Lease, choose: random.Random) -> Record:
    return Record(
        key=key,
        tuner="autotvm",
        schedule="{}",
        schedule_digest=digest_of(str(choose.random())),
        latencies=(1e-3, 1.1e-3, 1.2e-3),
        error=None,
        trial_number=1,
        job_id=job_id,
        worker_id=lease.worker_id,
        finished_at=datetime.now(UTC),
    )
