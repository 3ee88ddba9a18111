"""Speedup of a job with the number of workers: ``./run bench scale --json``.

Uses real worker processes, a real broker and a real database. Only the engines are simulated: their trials sleep for a
fixed time, so that a small machine can play many hosts. Each worker has its own home and lock folder, as if it were
alone on its host. Fleets of each size are measured in alternating order, so that other activity on the machine affects
all. The database is SQLite in a temporary file, or PostgreSQL (in a schema of its own, dropped afterwards) with ``--url
postgresql+psycopg://…`` or TUNESMITH_TEST_DATABASE_URL.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shlex
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from sqlalchemy import create_engine, make_url
from sqlalchemy.schema import CreateSchema, DropSchema

from bench import note, show
from bench.scale_engine import ROUND, TASKS
from domain.digests import ModelDigest
from domain.jobs import Budget, Job, JobRequest, JobState, Stage, Tuner, TunerOptions
from domain.models import ModelFacts, TensorSpec
from domain.stage_results import TuneResult
from storage import jobs, models, records, stages, workers
from storage.blobs.local import LocalBlobStore
from storage.database import Database, migrate
from tests.support.servers import processes
from tuner.host.catalogue import ROOT
from worker import broker, clock

_SPEC = TensorSpec(name="x", dtype="float32", shape=(1, 3, 8, 8))
_FACTS = ModelFacts(inputs=(_SPEC,), outputs=(_SPEC,), opset=13, ir_version=8, operators={"Conv": 1}, parameters=10)
_POLL_SECONDS = 0.2
_READY_SECONDS = 120.0
_WRITABLE = "measured"
"""Name of the folder in which the simulated engines may write."""
_SIMULATED = (
    "engines: a trial is {seconds:g} s of sleep and a latency by script; extraction, builds and checks take no time. "
    "Hosts: processes on this machine with homes and lock folders of their own."
)


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tunesmith-scale-")))
        url = f"sqlite:///{scratch / 'db.sqlite3'}"
        if options.url:
            url = stack.enter_context(_own_schema(options.url))
        turns = _Bench(scratch, url, options).run()
    report = _report(turns, options)
    if options.json:
        show(report)
    else:
        for row in report["fleets"]:
            sys.stdout.write(f"{row['workers']} workers: {row['tune_seconds']:.1f} s, {row['speed_up']:.2f}×\n")
    return 0 if all(row["duplicates"] == 0 for row in report["fleets"]) else 1


@dataclass(frozen=True, kw_only=True)
class Turn:
    workers: int
    tune_seconds: float
    trials: int
    duplicates: int
    rounds: list[int]
    """Rounds of the leading worker, then of each helper."""
    by_worker: list[int]
    """Trials by worker."""


class _Bench:
    def __init__(self, folder: Path, url: str, options: argparse.Namespace) -> None:
        self._folder = folder
        self._options = options
        self._engine, self._log = engine(folder, seconds=options.seconds)
        self._url = url

    def run(self) -> list[Turn]:
        forth = sorted(self._options.workers)
        orders = [forth if number % 2 == 0 else forth[::-1] for number in range(self._options.turns)]
        database = Database(self._url)
        migrate(database)
        try:
            with messages(self._folder) as broker_url:
                return [self._turn(database, broker_url, size) for order in orders for size in order]
        finally:
            database.close()

    def _turn(self, database: Database, broker_url: str, size: int) -> Turn:
        blobs = self._folder / "blobs"
        settings = environment(self._engine, database_url=self._url, broker_url=broker_url, blobs=blobs)
        self._log.write_text("")
        with running(self._folder / "fleet", size, settings, database):
            turn = self._tune(database, size)
        note(json.dumps(turn.__dict__))
        return turn

    def _tune(self, database: Database, size: int) -> Turn:
        job_id = queue(database, LocalBlobStore(self._folder / "blobs"), trials=self._options.trials)
        while not (job := _job(database, job_id)).state.is_final:
            time.sleep(_POLL_SECONDS)
        if job.state is not JobState.SUCCEEDED:
            raise SystemExit(f"the job has {job.state}: {job.failure}")
        return _turn_of(database, job_id, size, self._log.read_text().splitlines())


def queue(database: Database, blobs: LocalBlobStore, *, trials: int) -> str:
    """Queue a job for a new model; return its id."""
    blob = blobs.put([f"a simulated model {time.time_ns()}".encode()])
    request = JobRequest(
        model_digest=ModelDigest(blob.digest),
        budget=Budget(trials=trials),
        tuner=Tuner.AUTOTVM,
        tuner_options=TunerOptions(rewrite=False),
    )
    with database.transaction() as session:
        now = clock.now()
        models.add(
            session, digest=ModelDigest(blob.digest), name="m.onnx", size_bytes=blob.size_bytes, facts=_FACTS, now=now
        )
        return jobs.create(session, request, now=now).id


def _job(database: Database, job_id: str) -> Job:
    with database.reading() as session:
        return jobs.get(session, job_id)


def _turn_of(database: Database, job_id: str, size: int, measured: list[str]) -> Turn:
    with database.reading() as session:
        found = records.of_job(session, job_id)
        tuned = next(each for each in stages.timeline(session, job_id) if each.stage is Stage.TUNE)
    by_worker = Counter(record.worker_id for record in found)
    helpers = tuned.result.helpers if isinstance(tuned.result, TuneResult) else {}
    trials = [line for line in measured if line != ROUND]
    led = len(measured) - len(trials) - sum(helpers.values())
    return Turn(
        workers=size,
        tune_seconds=tuned.seconds,
        trials=len(found),
        duplicates=len(trials) - len(set(trials)),
        rounds=[led, *sorted(helpers.values(), reverse=True)],
        by_worker=sorted(by_worker.values(), reverse=True),
    )


def _report(turns: Sequence[Turn], options: argparse.Namespace) -> dict[str, Any]:
    sizes = sorted({turn.workers for turn in turns})
    seconds = {size: statistics.median(turn.tune_seconds for turn in turns if turn.workers == size) for size in sizes}
    fleets = [
        {
            "workers": size,
            "tune_seconds": round(seconds[size], 2),
            "speed_up": round(seconds[sizes[0]] * sizes[0] / seconds[size], 2),
            "trials": [turn.trials for turn in turns if turn.workers == size],
            "duplicates": sum(turn.duplicates for turn in turns if turn.workers == size),
            "rounds_per_worker": [turn.rounds for turn in turns if turn.workers == size],
            "trials_per_worker": [turn.by_worker for turn in turns if turn.workers == size],
            "turns_seconds": [round(turn.tune_seconds, 2) for turn in turns if turn.workers == size],
        }
        for size in sizes
    ]
    return {
        "simulated": _SIMULATED.format(seconds=options.seconds),
        "real": "worker processes, broker, database, leases, records, every stage of the pipeline",
        "tasks": TASKS,
        "trials": options.trials,
        "seconds_per_trial": options.seconds,
        "cores": os.cpu_count(),
        "database": "postgresql" if options.url else "sqlite",
        "fleets": fleets,
    }


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench scale", description=__doc__)
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N", help="sizes of fleets")
    parser.add_argument("--seconds", type=float, default=0.5, help="what a trial takes")
    parser.add_argument("--trials", type=int, default=TASKS * 24)
    parser.add_argument("--turns", type=int, default=2, help="how often each fleet has its turn")
    parser.add_argument(
        "--url",
        default=os.environ.get("TUNESMITH_TEST_DATABASE_URL"),
        help="of a PostgreSQL database, in place of SQLite",
    )
    return parser.parse_args(arguments)


def engine(folder: Path, *, seconds: float) -> tuple[Path, Path]:
    """Return a program to start instead of an engine's Python, and the file in which it logs every trial."""
    log, program = folder / _WRITABLE / "trials", folder / "engine"
    log.parent.mkdir()
    log.touch()
    command = [sys.executable, "-m", "bench.scale_engine", str(seconds), str(log)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    return program, log


def environment(program: Path, *, database_url: str, broker_url: str, blobs: Path, **others: str) -> dict[str, str]:
    """Return the environment common to all workers, without the caller's TUNESMITH variables."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TUNESMITH_")},
        **{f"TUNESMITH_ENGINE_{name}_PYTHON": str(program) for name in ("RELAY", "ONNX")},
        "TUNESMITH_ENGINE_WRITABLE": str(program.parent / _WRITABLE),
        "TUNESMITH_DATABASE_URL": database_url,
        "TUNESMITH_BROKER_URL": broker_url,
        "TUNESMITH_BLOB_URL": f"file://{blobs}",
        "TUNESMITH_LOOK_SECONDS": "0.5",
        "TUNESMITH_BENCHMARK_SECONDS": "0.1",
        **others,
    }


@contextlib.contextmanager
def messages(folder: Path) -> Iterator[str]:
    """Run a private broker; yields its URL."""
    with _process(broker.command(folder), folder / "broker.log", os.environ):
        url = broker.url(folder)
        client = redis.Redis(unix_socket_path=str(broker.socket_path(folder)))
        processes.wait_until(lambda: _answers(client), seconds=_READY_SECONDS, what="the broker answers")
        client.close()
        yield url


@contextlib.contextmanager
def running(folder: Path, size: int, environment: Mapping[str, str], database: Database) -> Iterator[list[str]]:
    """Run ``size`` workers; yields their ids once all are registered, and stops them at the end."""
    with contextlib.ExitStack() as stack:
        for number in range(size):
            home = folder / f"host{number}"
            home.mkdir(parents=True, exist_ok=True)
            own = {
                "TUNESMITH_HOME": str(home),
                "TUNESMITH_LOCK_FOLDER": str(home / "locks"),
                "TUNESMITH_TAKES": "cpu",
                "PYTHONPATH": str(ROOT),
            }
            command = [sys.executable, "-m", "worker"]
            stack.enter_context(_process(command, folder / f"host{number}.log", {**environment, **own}))
        processes.wait_until(lambda: len(_known(database)) == size, seconds=_READY_SECONDS, what=f"{size} workers run")
        yield _known(database)
    with database.transaction() as session:
        workers.forget(session, _known(database))


def _known(database: Database) -> list[str]:
    with database.reading() as session:
        return [each.id for each in workers.known(session)]


@contextlib.contextmanager
def _process(command: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    process = processes.start(command, log=log, folder=ROOT, environment=environment)
    try:
        yield
    finally:
        processes.end(process)


def _answers(client: redis.Redis) -> bool:
    with contextlib.suppress(redis.RedisError):
        return bool(client.ping())
    return False


@contextlib.contextmanager
def _own_schema(url: str) -> Iterator[str]:
    """Create an empty schema in that database; yields its URL and drops the schema at the end."""
    server, name = create_engine(url), f"bench_{secrets.token_hex(6)}"
    with server.begin() as connection:
        connection.execute(CreateSchema(name))
    try:
        made = make_url(url).update_query_dict({"options": f"-csearch_path={name}"})
        yield made.render_as_string(hide_password=False)
    finally:
        with server.begin() as connection:
            connection.execute(DropSchema(name, cascade=True))
        server.dispose()
