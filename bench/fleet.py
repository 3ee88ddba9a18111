"""A busy fleet in the database: hundreds of workers, thousands of queued jobs. Part of ``./run bench records``."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert

from domain import ids
from domain.jobs import Budget, JobRequest, JobState, Lease, Placement, Stage
from domain.models import ModelFacts
from domain.targets import Device, Target, Toolchain
from domain.workers import Worker
from storage import codec, models, workers
from storage.database import Database
from storage.tables import JobRow, StageRow, TuningTaskRow, digest_of

_MODEL = digest_of("a model")
_TARGET = Target(text="llvm -mcpu=skylake-avx512", threads=2)
_TASKS = 43
_BATCH = 1000


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
    _add_searches(database, finished, now)
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


def _add_searches(database: Database, job_ids: Sequence[str], now: datetime) -> None:
    """What their stage ``tune`` came to."""
    outcome = {"trials": 640, "seconds": 320.0, "arms": [{"tuner": "autotvm", "trials": 640, "seconds": 320.0}]}
    rows = [
        {
            "job_id": job_id,
            "stage": Stage.TUNE,
            "attempt": 1,
            "outcome": outcome,
            "started_at": now,
            "finished_at": now,
        }
        for job_id in job_ids
    ]
    for some in _batches(rows):
        with database.transaction() as session:
            session.execute(insert(StageRow), some)


def _batches(rows: Sequence[Any], size: int = _BATCH) -> Iterator[Sequence[Any]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
