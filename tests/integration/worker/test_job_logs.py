"""The end of a job's engine log reaches the database, whatever becomes of files, hosts and the database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from storage import job_logs, jobs
from storage.job_logs import MOST_BYTES, Tail
from tests.support.servers import processes
from tests.support.worker.fixtures import Bench
from worker import paths
from worker.job_logs import LogShipper

SOON = 0.02


@pytest.fixture
def job(bench: Bench) -> str:
    return bench.job()


def known(bench: Bench, job_id: str) -> Tail:
    with bench.database.reading() as session:
        return job_logs.read(session, job_id)


def log_of(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "job.log"
    path.touch()
    return path


def add(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def shipper(bench: Bench, job_id: str, path: Path, *, attempt: int = 1, seconds: float = 60) -> LogShipper:
    return LogShipper(bench.database, job_id, attempt, path, seconds=seconds)


@contextmanager
def without_database() -> Iterator[None]:
    def fail(*_: object) -> None:
        raise OperationalError("", None, Exception("the database is away"))

    event.listen(Engine, "before_cursor_execute", fail)
    yield
    event.remove(Engine, "before_cursor_execute", fail)


def test_a_log_is_stored_while_it_grows_and_at_the_end(bench: Bench, job: str, tmp_path: Path) -> None:
    path = log_of(tmp_path / "host")
    with shipper(bench, job, path, seconds=SOON):
        time.sleep(3 * SOON)
        assert known(bench, job) == job_logs.EMPTY
        add(path, b"building\n")
        processes.wait_until(
            lambda: known(bench, job).content == b"building\n", seconds=60, what="the text is stored", log=path
        )
    with shipper(bench, job, path, attempt=2):
        add(path, b"measuring\n")
    assert known(bench, job) == Tail(start=0, content=b"building\nmeasuring\n")


def test_of_a_long_log_the_end_is_stored(bench: Bench, job: str, tmp_path: Path) -> None:
    path = log_of(tmp_path / "host")
    with shipper(bench, job, path) as kept:
        add(path, b"a" * 100)
        kept.ship()
        add(path, b"b" * (2 * MOST_BYTES) + b"the end")
    tail = known(bench, job)
    assert (tail.size, len(tail.content)) == (2 * MOST_BYTES + 107, MOST_BYTES)
    assert tail.content.endswith(b"bthe end")


def test_a_log_goes_on_on_another_host_and_back(bench: Bench, job: str, tmp_path: Path) -> None:
    here, there = log_of(tmp_path / "here"), log_of(tmp_path / "there")
    for attempt, (path, text) in enumerate([(here, b"one\n"), (there, b"two\n"), (here, b"three\n")], 1):
        with shipper(bench, job, path, attempt=attempt):
            add(path, text)
    # What a killed worker could not store is in its file.
    add(here, b"more\n")
    with shipper(bench, job, here, attempt=4):
        add(here, b"four\n")
    text = known(bench, job).content
    assert text.startswith(b"one\n")
    assert text.endswith(b"four\n")
    assert text.index(b"two\n") < text.index(b"three\n") < text.index(b"four\n")


def test_what_a_killed_worker_left_in_its_file_follows(bench: Bench, job: str, tmp_path: Path) -> None:
    path = log_of(tmp_path / "host")
    with shipper(bench, job, path):
        add(path, b"one\n")
    add(path, b"killed\n")
    with shipper(bench, job, path, attempt=2):
        add(path, b"two\n")
    assert known(bench, job).content == b"one\nkilled\ntwo\n"


def test_a_file_that_somebody_emptied_goes_on_from_its_beginning(bench: Bench, job: str, tmp_path: Path) -> None:
    path = log_of(tmp_path / "host")
    with shipper(bench, job, path) as kept:
        add(path, b"one, which is long\n")
        kept.ship()
        path.write_bytes(b"two\n")
        kept.ship()
        path.unlink()
        kept.ship()
        add(path, b"three\n")
    assert known(bench, job).content == b"one, which is long\ntwo\nthree\n"


def test_a_worker_that_lost_the_job_writes_no_more(bench: Bench, job: str, tmp_path: Path) -> None:
    path, other = log_of(tmp_path / "host"), log_of(tmp_path / "other")
    with shipper(bench, job, path) as lost:
        add(path, b"one\n")
        lost.ship()
        with shipper(bench, job, other, attempt=2):
            add(other, b"two\n")
        add(path, b"still here\n")
        lost.ship()
    assert known(bench, job).content == b"one\ntwo\n"


def test_a_database_that_is_away_costs_nothing(bench: Bench, job: str, tmp_path: Path) -> None:
    path = log_of(tmp_path / "host")
    with shipper(bench, job, path) as kept:
        add(path, b"one\n")
        with without_database():
            kept.ship()
        kept.ship()
        assert known(bench, job).content == b"one\n"
        add(path, b"two\n")
        with without_database():
            kept.ship()
    assert known(bench, job).content == b"one\ntwo\n"
    with without_database(), shipper(bench, job, path, attempt=2):
        add(path, b"three\n")


def test_a_folder_in_place_of_the_file_costs_nothing(bench: Bench, job: str, tmp_path: Path) -> None:
    with shipper(bench, job, tmp_path):
        pass
    assert known(bench, job) == job_logs.EMPTY


def test_who_learns_of_the_end_can_read_the_whole_log(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id, text = bench.job(trials=8), b"what an engine printed\n"
    log = paths.job_log(bench.home, job_id)

    def print_it(_trials: int) -> None:
        log.write_bytes(text)

    bench.script.on_trial = print_it
    seen: list[bytes] = []
    end = jobs._end

    def note(session: object, *arguments: object, **options: object) -> bool:
        seen.append(job_logs.read(session, job_id).content)  # type: ignore[arg-type]
        return end(session, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs, "_end", note)
    bench.finish(job_id)
    assert seen == [text]
