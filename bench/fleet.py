"""A busy fleet in the database: hundreds of workers, thousands of queued jobs; and what they ask all the time.

Part of ``./run bench records``. Each question is asked as a worker or the API asks it, in a transaction of its own;
beside its time stands how often that many workers ask it, and so how much of one connection all of them take.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session

from domain import ids
from domain.jobs import Budget, JobRequest, JobState, Lease, Placement
from domain.models import ModelFacts
from domain.records import Record, RecordKey
from domain.targets import Device, Target, Toolchain
from domain.workers import Worker
from storage import codec, counts, coverage, jobs, models, rates, records, tuning_tasks, webhooks, workers
from storage.database import Database
from storage.tables import JobRow, TuningTaskRow, digest_of

_MODEL = digest_of("a model")
_TARGET = Target(text="llvm -mcpu=skylake-avx512", threads=2)
_TASKS = 43
_BATCH = 1000
_TRIALS_AT_ONCE = 16
_LEASE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Size:
    workers: int
    queued: int
    finished: int


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What is there to ask about."""

    size: Size
    device: Device
    toolchain: Toolchain
    workload: Callable[[int], str]
    workloads: int
    queued: Sequence[str]
    running: Sequence[tuple[str, Lease]]
    workers: Sequence[Worker]

    @property
    def identity(self) -> dict[str, str]:
        return {
            "target": _TARGET.identity,
            "device_key": self.device.key,
            "toolchain": self.toolchain.identity,
        }

    def model(self, choose: random.Random) -> list[str]:
        return [self.workload(number) for number in choose.sample(range(self.workloads), min(_TASKS, self.workloads))]


def load(
    database: Database, size: Size, *, device: str, toolchain: str, workload: Callable[[int], str], workloads: int
) -> Fleet:
    """Every worker runs a job; the others wait, or ended some time ago with tuning tasks of their own."""
    now = datetime.now(UTC)
    engine, tvm, llvm = toolchain.split("/")
    tools = Toolchain(engine=engine, tvm=tvm.removeprefix("tvm-"), llvm=llvm.removeprefix("llvm-"))
    here = Device(key=device, name="bench", threads=2)
    facts = ModelFacts(inputs=(), outputs=(), opset=17, ir_version=8, operators={}, parameters=1)
    with database.transaction() as session:
        models.add(session, digest=_MODEL, name="net.onnx", size_bytes=1, facts=facts, now=now)
    fleet = [_worker(number, here, tools, now) for number in range(size.workers)]
    for some in _batches(fleet):
        with database.transaction() as session:
            for worker in some:
                workers.beat(session, worker)
    finished = _add_jobs(database, size.finished, JobState.SUCCEEDED, now - timedelta(days=30), here, tools)
    _add_tasks(database, finished, workload, workloads)
    running = _add_jobs(database, size.workers, JobState.RUNNING, now - timedelta(hours=1), here, tools, fleet)
    queued = _add_jobs(database, size.queued, JobState.QUEUED, now - timedelta(minutes=50), here, tools)
    leases = [
        (job_id, Lease(worker_id=worker.id, attempt=1, expires_at=now))
        for job_id, worker in zip(running, fleet, strict=True)
    ]
    return Fleet(
        size=size,
        device=here,
        toolchain=tools,
        workload=workload,
        workloads=workloads,
        queued=queued,
        running=leases,
        workers=fleet,
    )


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


@dataclass(frozen=True, kw_only=True)
class _Question:
    ask: Callable[[Session, random.Random], object]
    writes: bool = False
    a_second: float = 0.0
    """How often all workers together ask it, with the settings' defaults; 0: as often as people or jobs come."""


def _questions(fleet: Fleet) -> Mapping[str, _Question]:
    many, now = float(fleet.size.workers), datetime.now(UTC)
    to_claim = iter(fleet.queued)
    key = RecordKey(workload_key=fleet.workload(1), **fleet.identity)

    def claim(session: Session, choose: random.Random) -> object:
        return jobs.claim(
            session,
            next(to_claim),
            worker_id=choose.choice(fleet.workers).id,
            now=now,
            lease_seconds=_LEASE_SECONDS,
            max_attempts=5,
        )

    def renew(session: Session, choose: random.Random) -> object:
        job_id, lease = choose.choice(fleet.running)
        return jobs.renew(session, job_id, lease, now=datetime.now(UTC), lease_seconds=_LEASE_SECONDS)

    def store(session: Session, choose: random.Random) -> object:
        job_id, lease = choose.choice(fleet.running)
        found = [_trial(key, job_id, lease, choose) for _ in range(_TRIALS_AT_ONCE)]
        records.add(session, found)
        return jobs.set_progress(session, job_id, lease, trials_done=16, trials_planned=640)

    def elsewhere(session: Session, choose: random.Random) -> object:
        job_id, _ = choose.choice(fleet.running)
        return tuning_tasks.tuned_elsewhere(session, job_id, fleet.model(choose), now=now, **fleet.identity)

    def scrape(session: Session, _: random.Random) -> object:
        newest = counts.newest_record(session)
        return [
            counts.jobs_by_state(session),
            counts.queued_by_priority(session),
            counts.rounds_at_work(session),
            counts.workers(session, seen_since=now - timedelta(minutes=1)),
            counts.pending_deliveries(session),
            counts.trials(session, after=newest - 1000, to=newest),
        ]

    def pace(session: Session, _: random.Random) -> object:
        identity = {"device_key": fleet.device.key, "toolchain": fleet.toolchain.identity}
        return rates.seconds_a_trial(session, tuner="autotvm", **identity)

    def rare_pace(session: Session, _: random.Random) -> object:
        return rates.seconds_a_trial(session, device_key="another", toolchain="another", tuner="autotvm")

    return {
        "a worker's sign of life": _Question(
            ask=lambda session, choose: workers.beat(
                session, replace(choose.choice(fleet.workers), last_seen_at=datetime.now(UTC))
            ),
            writes=True,
            a_second=many / 10,
        ),
        "a look whether a job is canceled": _Question(
            ask=lambda session, choose: jobs.get(session, choose.choice(fleet.running)[0]), a_second=many
        ),
        "renewing a lease": _Question(ask=renew, writes=True, a_second=many * 4 / _LEASE_SECONDS),
        "the reaper's look for jobs without a message": _Question(
            ask=lambda session, _: jobs.waiting(session, now=datetime.now(UTC), unpublished_for=3600.0),
            a_second=many / 3,
        ),
        "the same, when every queued job needs one": _Question(
            ask=lambda session, _: jobs.waiting(session, now=datetime.now(UTC), unpublished_for=60.0)
        ),
        "a look for webhooks to send": _Question(
            ask=lambda session, _: webhooks.due(session, now=datetime.now(UTC), limit=500), a_second=many / 3
        ),
        f"storing {_TRIALS_AT_ONCE} trials and the progress": _Question(
            ask=store, writes=True, a_second=many * 5 / _TRIALS_AT_ONCE
        ),
        "claiming a queued job": _Question(ask=claim, writes=True),
        "coverage of a model's 43 workloads": _Question(
            ask=lambda session, choose: coverage.find(session, fleet.model(choose), **fleet.identity)
        ),
        "who tunes a model's 43 workloads now": _Question(ask=elsewhere),
        "seconds a trial takes on a device": _Question(ask=pace),
        "the same of a device that no job ran on": _Question(ask=rare_pace),
        "a page of 50 jobs": _Question(ask=lambda session, _: jobs.page(session, limit=50)),
        "a page of 50 queued jobs": _Question(
            ask=lambda session, _: jobs.page(session, limit=50, state=JobState.QUEUED)
        ),
        "all living workers": _Question(
            ask=lambda session, _: workers.known(session, seen_since=now - timedelta(minutes=1))
        ),
        "what a scrape of /metrics counts": _Question(ask=scrape),
    }


def _timed(database: Database, question: _Question, choose: random.Random) -> tuple[float, float]:
    """Milliseconds, and those of them that this process computed: with SQLite, all but waiting for the disk."""
    started, busy = time.perf_counter(), time.process_time()
    with database.transaction() if question.writes else database.reading() as session:
        question.ask(session, choose)
    return 1e3 * (time.perf_counter() - started), 1e3 * (time.process_time() - busy)


def _worker(number: int, device: Device, toolchain: Toolchain, now: datetime) -> Worker:
    host = f"host-{number // 2}"
    return Worker(
        id=f"{host}:{1000 + number}:{number}",
        hostname=host,
        pid=1000 + number,
        device=device,
        native_target=_TARGET,
        toolchains=(toolchain,),
        current_job=None,
        started_at=now,
        last_seen_at=now,
    )


def _add_jobs(
    database: Database,
    count: int,
    state: JobState,
    start: datetime,
    device: Device,
    toolchain: Toolchain,
    owners: Sequence[Worker] = (),
) -> list[str]:
    """Without their events; returns the ids."""
    placement = Placement(target=_TARGET, device=device, toolchain=toolchain)
    request = codec.dump(JobRequest(model_digest=_MODEL, budget=Budget(trials=640)))
    placed = state is not JobState.QUEUED
    rows = []
    for number in range(count):
        created = start + timedelta(seconds=number * 0.01)
        rows.append(
            {
                "id": ids.job(created),
                "model_digest": _MODEL,
                "request": request,
                "priority": number % 10,
                "state": state,
                "placement": codec.dump(placement) if placed else None,
                "target": _TARGET.identity if placed else None,
                "device_key": device.key if placed else None,
                "toolchain": toolchain.identity if placed else None,
                "claims": int(placed),
                "attempts": int(placed),
                "worker_id": owners[number].id if owners else None,
                "lease_expires_at": datetime.now(UTC) + timedelta(hours=10) if owners else None,
                "trials_done": 640 if placed else 0,
                "created_at": created,
                "published_at": datetime.now(UTC) - timedelta(minutes=10),
            }
        )
    for some in _batches(rows):
        with database.transaction() as session:
            session.execute(insert(JobRow), some)
    return [str(row["id"]) for row in rows]


def _add_tasks(database: Database, job_ids: Sequence[str], workload: Callable[[int], str], workloads: int) -> None:
    choose = random.Random(1)  # noqa: S311 - which tasks a model has
    for some in _batches(job_ids, 100):
        rows = [
            {
                "job_id": job_id,
                "position": position,
                "name": "conv2d_NCHWc.x86",
                "workload_digest": digest_of(workload(number)),
                "workload_key": workload(number),
                "description": "conv2d",
                "weight": 1,
                "flop": 1e6,
                "space_size": 1000,
                "trials_planned": 16,
                "effort_trials": 16.0,
                "effort_seconds": 8.0,
            }
            for job_id in some
            for position, number in enumerate(choose.sample(range(workloads), min(_TASKS, workloads)))
        ]
        with database.transaction() as session:
            session.execute(insert(TuningTaskRow), rows)


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


def _batches(rows: Sequence[Any], size: int = _BATCH) -> Iterator[Sequence[Any]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
