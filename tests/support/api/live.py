"""The API as a real server on a free port; also a program, to look at the command line by hand.

``python -m tests.support.api.live HOME [PACE]`` serves the folder and works on every job by script.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from api.__main__ import ApiServer
from api.settings import ApiSettings
from domain.jobs import JobState
from storage import jobs
from tests.support.api.factories import TOKEN, Service, make_service
from tests.support.api.scripted import ScriptedWorker
from tests.support.waiting import until


@contextmanager
def serving(service: Service, *, port: int = 0, **settings: Any) -> Iterator[str]:
    """The URL; the server has let go of every stream when this ends."""
    server = ApiServer(service.app, ApiSettings(port=port, token=None, shutdown_seconds=3, **settings))
    thread = threading.Thread(target=server.run, name="api")
    thread.start()
    try:
        until(lambda: server.started, seconds=20)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive()


def main() -> None:
    home = Path(sys.argv[1])
    home.mkdir(parents=True, exist_ok=True)
    service = make_service(home)
    worker = ScriptedWorker(service, pace=float(sys.argv[2]) if sys.argv[2:] else 0.2, trials=16)
    with serving(service) as url:
        (home / "server.json").write_text(json.dumps({"url": url, "token": TOKEN}))
        while True:
            worker.beat()
            with service.database.reading() as session:
                found, _ = jobs.page(session, state=JobState.QUEUED, limit=1)
            for job in found:
                worker.run(job.id)
            time.sleep(0.2)


if __name__ == "__main__":
    main()
