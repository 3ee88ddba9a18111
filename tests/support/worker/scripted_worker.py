"""``python -m tests.support.worker.scripted_worker BROKER_URL HOME SECONDS``: a whole worker over scripted engines.

Each trial takes ``SECONDS``, in which the engine listens to nobody; the log tells when one begins.
"""

from __future__ import annotations

import sys
from pathlib import Path

from storage.blobs.local import LocalBlobStore
from storage.database import Database
from tests.support.worker.scripted import HELLO, Script
from worker import app as worker_app
from worker import engines, periodic
from worker.runtime import Runtime
from worker.settings import WorkerSettings

BEGUN = "a trial begins"


def tell(_trial: int) -> None:
    sys.stderr.write(f"{BEGUN}\n")


def main() -> None:
    url, home, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    engines.ask_hello = lambda *_: HELLO
    runtime = Runtime(
        database=Database(f"sqlite:///{home / 'db.sqlite3'}"),
        blobs=LocalBlobStore(home / "blobs"),
        engines=Script(seconds_per_trial=seconds, before_trial=tell),
        settings=WorkerSettings(
            home=home,
            takes="cpu",
            heartbeat_seconds=1,
            look_seconds=0.5,
            benchmark_seconds=0.001,
        ),
    )
    runtime.clean_up()
    runtime.announce()
    app = worker_app.create(url, runtime)
    periodic.start(runtime)
    worker_app.run(app, runtime)


if __name__ == "__main__":
    main()
