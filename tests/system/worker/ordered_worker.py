"""``python -m tests.system.worker.ordered_worker BROKER_URL HOME``: a worker that takes and ends jobs like a real one.

It works on the first job until the file ``go`` lies in the home folder.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from unittest.mock import Mock

from domain.jobs import JobState
from storage import jobs
from storage.database import Database
from worker import app as worker_app
from worker import clock
from worker.runtime import Runtime
from worker.settings import WorkerSettings


class OrderedRuntime(Runtime):
    def run_job(self, job_id: str) -> None:
        job = self._claim(job_id)
        if job is None:
            return
        assert job.lease is not None
        deadline = time.monotonic() + 30
        while not (self.settings.home / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        with self.database.transaction() as session:
            jobs.finish(session, job_id, job.lease, state=JobState.SUCCEEDED, now=clock.now())


def main() -> None:
    url, home = sys.argv[1], Path(sys.argv[2])
    runtime = OrderedRuntime(
        database=Database(f"sqlite:///{home / 'db.sqlite3'}"),
        blobs=Mock(),
        engines=Mock(),
        settings=WorkerSettings(home=home, takes="cpu"),
    )
    arguments = ["--quiet", "worker", "--loglevel=WARNING", "--without-gossip", "--without-mingle"]
    worker_app.create(url, runtime).worker_main([*arguments, "--without-heartbeat"])


if __name__ == "__main__":
    main()
