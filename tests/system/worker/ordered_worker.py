"""``python -m tests.system.worker.ordered_worker BROKER_URL HOME SECONDS ENGINE…``: a worker that only claims jobs.

It looks by itself every so many seconds. It ends every job at once, the first one when the file ``go`` lies in the home
folder.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from unittest.mock import Mock

from domain.jobs import Job, JobState
from storage import jobs
from storage.database import Database
from tests.support.worker.scripted import HELLO, RELAX
from worker import app as worker_app
from worker import clock, periodic
from worker import engines as worker_engines
from worker.runtime import Runtime
from worker.settings import WorkerSettings


class OrderedRuntime(Runtime):
    def _run(self, job: Job) -> None:
        assert job.lease is not None
        deadline = time.monotonic() + 30
        while not (self.settings.home / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        with self.database.transaction() as session:
            jobs.finish(session, job.id, job.lease, state=JobState.SUCCEEDED, now=clock.now())


def main() -> None:
    url, home, seconds, engines = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
    known = {"onnx": HELLO, "relay": HELLO, "relax": RELAX}
    worker_engines.ask_hello = lambda name, *_: known[name] if name in ("onnx", *engines) else None
    runtime = OrderedRuntime(
        database=Database(f"sqlite:///{home / 'db.sqlite3'}"),
        blobs=Mock(),
        engines=Mock(),
        settings=WorkerSettings(home=home, takes="cpu", look_seconds=seconds),
    )
    runtime.announce()
    periodic.start(runtime)
    worker_app.run(worker_app.create(url, runtime), runtime)


if __name__ == "__main__":
    main()
