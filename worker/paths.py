"""Paths of a worker's files under the home folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from domain import errors
from storage import jobs
from storage.database import Database


def work(home: Path, job_id: str) -> Path:
    """The job's work folder, kept until the job ends."""
    return home / "work" / job_id


def clear_work(database: Database, home: Path, job_id: str, *, unknown: bool = False) -> None:
    """Remove the work folder of an ended job; another worker may continue one that has not ended.

    ``unknown``: also remove the folder of a job that is not in the database.
    """
    try:
        with database.reading() as session:
            ended = jobs.get(session, job_id).state.is_final
    except errors.JobNotFound:
        ended = unknown
    if ended:
        shutil.rmtree(work(home, job_id), ignore_errors=True)


def job_log(home: Path, job_id: str) -> Path:
    """Output of the job's engines; kept after the job has ended."""
    return home / "logs" / "jobs" / f"{job_id}.log"


def help_log(home: Path, job_id: str) -> Path:
    """Output of engines that helped another worker's job; not part of the job's log, which has one writer at a time."""
    return home / "logs" / "jobs" / f"{job_id}.help.log"


def hello_cache(home: Path) -> Path:
    return home / "run" / "hello"
