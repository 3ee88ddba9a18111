"""``python -m tests.support.storage.counting URL JOB TIMES`` competes for a job and adds TIMES to its progress.

Each addition reads, then writes what it read plus one: updates are lost wherever two that hold the job overlap.
"""

from __future__ import annotations

import sys

from sqlalchemy import select

from storage import jobs
from storage.database import Database
from storage.tables import JobRow


def add_one(database: Database, job_id: str) -> None:
    with database.transaction() as session:
        lease = jobs.get(session, job_id).lease
        assert lease is not None
        assert jobs.holds(session, job_id, lease)
        done = session.scalar(select(JobRow.trials_done).where(JobRow.id == job_id))
        assert done is not None
        assert jobs.set_progress(session, job_id, lease, trials_done=done + 1, trials_planned=400)


if __name__ == "__main__":
    database = Database(sys.argv[1])
    for _ in range(int(sys.argv[3])):
        add_one(database, sys.argv[2])
    database.close()
