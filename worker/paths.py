"""Where a worker keeps its files under the home folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from domain import errors
from storage import jobs
from storage.database import Database


def work(home: Path, job_id: str) -> Path:
    """Files that a job needs until it ends."""
    return home / "work" / job_id


def clear_work(database: Database, home: Path, job_id: str, *, unknown: bool = False) -> None:
    """Remove the work folder of a job that has ended: another worker may go on with one that has not.

    ``unknown``: that of a job that the database does not know as well.
    """
    try:
        with database.reading() as session:
            ended = jobs.get(session, job_id).state.is_final
    except errors.JobNotFound:
        ended = unknown
    if ended:
        shutil.rmtree(work(home, job_id), ignore_errors=True)


def job_log(home: Path, job_id: str) -> Path:
    """What the job's engines printed; kept after the job."""
    return home / "logs" / "jobs" / f"{job_id}.log"


def help_log(home: Path, job_id: str) -> Path:
    """What engines printed here that helped with a job of another worker: no part of the job's log, which goes on in
    one place at a time."""
    return home / "logs" / "jobs" / f"{job_id}.help.log"


def hello_cache(home: Path) -> Path:
    return home / "run" / "hello"
