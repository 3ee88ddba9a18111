"""Where a worker keeps its files under the home folder."""

from __future__ import annotations

from pathlib import Path


def work(home: Path, job_id: str) -> Path:
    """Files that a job needs until it ends."""
    return home / "work" / job_id


def job_log(home: Path, job_id: str) -> Path:
    """What the job's engines printed; kept after the job."""
    return home / "logs" / "jobs" / f"{job_id}.log"


def help_log(home: Path, job_id: str) -> Path:
    """What engines printed here that helped with a job of another worker: no part of the job's log, which goes on in
    one place at a time."""
    return home / "logs" / "jobs" / f"{job_id}.help.log"


def hello_cache(home: Path) -> Path:
    return home / "run" / "hello"
