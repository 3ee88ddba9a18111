"""How long lookups take among a million records: ``./run bench records --json``.

The records are like those of a busy service: 2000 workloads of AutoTVM, Ansor and MetaSchedule on six placements, where
a workload has been tuned again and again. Each query is asked of many random keys, cold caches and all, and timed
around a session of its own, as the API and the workers ask. SQLite in a temporary file, and PostgreSQL (in a schema of
its own, dropped afterwards) with ``--url postgresql+psycopg://…`` or TUNESMITH_TEST_DATABASE_URL.

With them a fleet at work: see ``bench.fleet``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Index, Insert, insert, select, text
from sqlalchemy.orm import Session

from bench import fleet, fleet_questions, postgresql
from domain.records import RecordKey
from storage import record_pages, record_summaries, records
from storage.database import Database, migrate
from storage.tables import RecordRow, digest_of

_BATCH = 5000
_GENERATED = 1_000_000
"""More than that are copies, which a database makes faster than Python."""
_TASKS_OF_A_MODEL = 43
_PLACEMENTS = [
    (f"llvm -mcpu={cpu} -num-cores={threads}", f"{name}/avx2+fma+avx512f+avx512vnni/t{threads}", toolchain)
    for cpu, name, threads in (
        ("skylake-avx512", "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", 2),
        ("znver3", "AMD EPYC 7R13 Processor", 8),
        ("cortex-a72", "ARM Cortex-A72", 4),
    )
    for toolchain in ("relay/tvm-0.19.0/llvm-22.1.8", "relax/tvm-0.27.0/llvm-22")
]
_SEED = 7


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    report: dict[str, Any] = {
        "records": options.records,
        "workloads": options.workloads,
        "fleet": {"workers": options.workers, "queued": options.queued, "finished": options.finished},
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "python": platform.python_version()},
        "databases": {},
    }
    if "sqlite" in options.databases:
        with tempfile.TemporaryDirectory(prefix="tunesmith-records-", dir=options.folder) as folder:
            report["databases"]["sqlite"] = _measure(Database(f"sqlite:///{folder}/db.sqlite3"), options)
            report["databases"]["sqlite"]["bytes"] = sum(path.stat().st_size for path in Path(folder).iterdir())
    if "postgresql" in options.databases and options.url:
        with postgresql.own_schema(options.url) as url:
            report["databases"]["postgresql"] = _measure(Database(url), options)
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0


def _measure(database: Database, options: argparse.Namespace) -> dict[str, Any]:
    migrate(database)
    started = time.perf_counter()
    _load(database, options.records, options.workloads)
    loaded = time.perf_counter() - started
    _note(f"{database.url.get_backend_name()}: {options.records} records loaded in {loaded:.0f} s")
    choose = random.Random(_SEED)  # noqa: S311 - keys to ask for
    milliseconds = {
        name: _timed(database, ask, options.repeat, choose) for name, ask in _queries(options.workloads).items()
    }
    seconds = _whole_store(database)
    size = fleet.Size(workers=options.workers, queued=options.queued, finished=options.finished)
    _, device, toolchain = _PLACEMENTS[0]
    made = fleet.load(
        database, size, device=device, toolchain=toolchain, workload=_workload, workloads=options.workloads
    )
    _analyze(database)
    _note(f"{database.url.get_backend_name()}: a fleet of {options.workers} workers is there")
    asked = fleet_questions.measure(database, made, repeat=min(options.repeat, options.queued), seed=_SEED)
    bytes_used = _postgresql_bytes(database)
    database.close()
    return {
        "load_seconds": loaded,
        "milliseconds": milliseconds,
        "seconds_for_the_whole_store": seconds,
        "fleet_milliseconds": asked,
        **bytes_used,
    }


def _whole_store(database: Database) -> float:
    """The dashboard's page of all records, which is kept for a while."""
    started = time.perf_counter()
    with database.reading() as session:
        record_summaries.read(session)
    return round(time.perf_counter() - started, 3)


def _analyze(database: Database) -> None:
    """As PostgreSQL's autovacuum does in its own time."""
    if database.url.get_backend_name() == "postgresql":
        with database.transaction() as session:
            session.execute(text("ANALYZE"))


def _postgresql_bytes(database: Database) -> dict[str, int]:
    if database.url.get_backend_name() != "postgresql":
        return {}
    with database.reading() as session:
        tables, indexes = session.execute(text("SELECT pg_table_size('records'), pg_indexes_size('records')")).one()
    return {"records_bytes": tables, "records_index_bytes": indexes}


def _load(database: Database, count: int, workloads: int) -> None:
    """Indexes are made afterwards, as whoever loads much does; a service makes them record by record."""
    generate = random.Random(_SEED)  # noqa: S311 - records to ask about
    keys = [(key, digest_of(key)) for key in map(_workload, range(workloads))]
    generated = min(count, _GENERATED)
    indexes = [index for index in RecordRow.__table__.indexes if isinstance(index, Index)]
    with database.transaction() as session:
        for index in indexes:
            index.drop(session.connection())
    for start in range(0, generated, _BATCH):
        rows = [_row(number, keys, generate) for number in range(start, min(start + _BATCH, generated))]
        with database.transaction() as session:
            session.execute(insert(RecordRow), rows)
    for copy in range(1, count // generated):
        with database.transaction() as session:
            session.execute(_copied(copy, generated))
        _note(f"{database.url.get_backend_name()}: {(copy + 1) * generated} records")
    with database.transaction() as session:
        for index in indexes:
            index.create(session.connection())
    _analyze(database)


def _copied(copy: int, generated: int) -> Insert:
    """The first records once more, of other jobs and a little slower."""
    columns = [column for column in RecordRow.__table__.columns if column.name != "id"]
    changed = {"job_id": RecordRow.job_id + f"-{copy}", "latency": RecordRow.latency * (1 + copy / 1000)}
    selected = select(*(changed.get(column.name, column) for column in columns)).where(RecordRow.id <= generated)
    return insert(RecordRow).from_select([column.name for column in columns], selected)


def _row(number: int, keys: Sequence[tuple[str, str]], generate: random.Random) -> dict[str, Any]:
    # Popular layers are tuned far more often than rare ones.
    key, digest = keys[
        min(int(generate.paretovariate(0.7)) - 1, len(keys) - 1)
        if generate.random() < 0.2
        else generate.randrange(len(keys))
    ]
    target, device, toolchain = generate.choices(_PLACEMENTS, weights=(8, 2, 2, 2, 1, 1))[0]
    failed = generate.random() < 0.1
    latency = None if failed else generate.lognormvariate(-7, 1)
    return {
        "job_id": f"j-{number // 2000:020}",
        "workload_digest": digest,
        "workload_key": key,
        "target": target,
        "device_key": device,
        "toolchain": toolchain,
        "tuner": "metaschedule" if toolchain.startswith("relax") else ("ansor" if number % 3 else "autotvm"),
        "schedule_digest": digest_of(str(number)),
        "schedule": _SCHEDULE % number,
        "latency": latency,
        "latencies": [] if latency is None else [latency * factor for factor in (0.99, 1.0, 1.01)],
        "error": "build_error" if failed else None,
        "error_message": "LLVM refused it" if failed else None,
        "trial_number": number % 2000,
        "worker_id": "host:1:2",
        "finished_at": _START + timedelta(seconds=number),
    }


_START = datetime(2026, 1, 1, tzinfo=UTC)
_SCHEDULE = (
    '{"input": ["llvm -keys=cpu -mcpu=skylake-avx512 -num-cores=2", "conv2d_NCHWc.x86", [["TENSOR", [1, 64, 56, 56], '
    '"float32"], ["TENSOR", [64, 64, 3, 3], "float32"], [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW16c"], {}], '
    '"config": {"index": %d, "code_hash": null, "entity": [["tile_ic", "sp", [-1, 16]], ["tile_oc", "sp", [-1, 16]], '
    '["tile_ow", "sp", [-1, 8]], ["unroll_kw", "ot", true]]}, "result": [[0.00012, 0.00013, 0.00012], 0, 0.41, '
    '1767225600.0], "version": 0.2, "tvm_version": "0.19.0"}'
)


def _workload(number: int) -> str:
    tensors = [["TENSOR", [1, number % 512 + 1, 56, 56], "float32"], ["TENSOR", [64, 64, 3, 3], "float32"]]
    return json.dumps(["conv2d_NCHWc.x86", [*tensors, [number, 1], [1, 1, 1, 1], "NCHW", "NCHW", "float32"]])


Ask = Callable[[Session, random.Random], object]


def _queries(workloads: int) -> dict[str, Ask]:
    def one(choose: random.Random) -> RecordKey:
        target, device, toolchain = choose.choice(_PLACEMENTS)
        key = _workload(choose.randrange(workloads))
        return RecordKey(workload_key=key, target=target, device_key=device, toolchain=toolchain)

    def model(choose: random.Random) -> tuple[list[str], str, str, str]:
        numbers = choose.sample(range(workloads), min(_TASKS_OF_A_MODEL, workloads))
        return [_workload(number) for number in numbers], *choose.choice(_PLACEMENTS)

    def export(session: Session, choose: random.Random) -> object:
        target, device, toolchain = _PLACEMENTS[0]
        wanted = record_pages.RecordFilter(tuner="ansor", target=target, device_key=device, toolchain=toolchain)
        token = f"r{choose.randrange(1, 500_000)}"
        return record_pages.page(session, wanted, limit=200, page_token=token)

    return {
        "best of one workload": lambda session, choose: records.best(session, one(choose)),
        "best of a model's 43 workloads": lambda session, choose: records.best_of_many(session, *model(choose)),
        "top 8 of one workload": lambda session, choose: _top(session, one(choose)),
        "top 8 of a model's 43 workloads": lambda session, choose: records.top_of_many(session, *model(choose), top=8),
        "counts of a model's 43 workloads": lambda session, choose: records.counts_of_many(session, *model(choose)),
        "passed over for a model's 43 workloads": lambda session, choose: records.passed_over(session, *model(choose)),
        "a page of 50 of a workload's history": lambda session, choose: record_pages.history(
            session, one(choose), limit=50
        ),
        "a page of 200 of an export": export,
        "a page of 200 of a job's records": lambda session, choose: record_pages.page(
            session, record_pages.RecordFilter(job_id=f"j-{choose.randrange(400):020}"), limit=200
        ),
    }


def _top(session: Session, key: RecordKey) -> object:
    return records.top_of_many(session, [key.workload_key], key.target, key.device_key, key.toolchain, top=8)


def _timed(database: Database, ask: Ask, repeat: int, choose: random.Random) -> dict[str, float]:
    took, spent = [], []
    for _ in range(repeat):
        started, busy = time.perf_counter(), time.process_time()
        with database.reading() as session:
            ask(session, choose)
        took.append(1e3 * (time.perf_counter() - started))
        spent.append(1e3 * (time.process_time() - busy))
    took.sort()
    # What this process itself computed: the same on a busy machine, and with SQLite all there is.
    cpu = sorted(spent)[len(spent) // 2]
    return {
        "median": round(took[len(took) // 2], 3),
        "p99": round(took[int(len(took) * 0.99)], 3),
        "cpu_median": round(cpu, 3),
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def _note(line: str) -> None:
    sys.stderr.write(line + "\n")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench records", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--workloads", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=300, help="random keys of each query")
    parser.add_argument("--workers", type=int, default=300)
    parser.add_argument("--queued", type=int, default=5000, help="jobs that wait")
    parser.add_argument("--finished", type=int, default=5000, help="jobs that ended, with 43 tuning tasks each")
    parser.add_argument("--folder", type=Path, help="where SQLite's file is made; by default among temporary ones")
    parser.add_argument("--databases", nargs="+", choices=["sqlite", "postgresql"], default=["sqlite", "postgresql"])
    parser.add_argument("--url", default=postgresql.default_url(), help="of a PostgreSQL database to measure as well")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
