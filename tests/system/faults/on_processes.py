"""Faults of the service's own processes."""

from __future__ import annotations

import os
import signal
import time

from celery import Celery

from domain import dispatch
from tests.support.topology import scripted_engine
from tests.support.topology.engines import Engines
from tests.system.faults.scene import Scene
from tests.system.faults.trying import Fault

_SOFT_SECONDS = 12.0
_MESSAGES = 40


def kill_worker(scene: Scene) -> None:
    """Every other time it stays dead, as with its host."""
    scene.holder().kill(restart=scene.number % 2 == 0)


def kill_engine(scene: Scene) -> None:
    """All that the job has: the one that tunes, and those that only time what was built."""
    found = scene.engines()
    assert found, "the job has no engine"
    for engine in found:
        os.kill(engine, signal.SIGKILL)


def kill_api(scene: Scene) -> None:
    scene.topology.api.kill()


def end_worker_softly(scene: Scene) -> None:
    part = scene.holder()
    started = time.monotonic()
    status = part.stop(seconds=_SOFT_SECONDS)
    seconds = time.monotonic() - started
    if seconds >= _SOFT_SECONDS:
        raise AssertionError(f"the worker had not ended {seconds:.1f} s after SIGTERM")
    scene.notes.append(f"the worker ended {seconds:.1f} s after SIGTERM, with status {status}")
    part.start()


def send_many(scene: Scene) -> None:
    """Ring all workers again and again, at the moment at which another job is queued."""
    scene.others.append(scene.submit())
    app = Celery(broker=scene.topology.redis.url())
    app.conf.broker_transport_options = dispatch.transport_options()
    for _ in range(_MESSAGES):
        app.send_task(dispatch.BELL, queue=dispatch.QUEUE)
    app.close()


def _api_answers(scene: Scene) -> bool:
    return scene.topology.client.get("/readyz").status_code == 200


FAULTS = (
    Fault(
        name="kill-worker",
        title="kill −9 of the worker",
        strike=kill_worker,
        engines=Engines.REAL,
        silences_host=True,
    ),
    Fault(name="kill-engine", title="kill −9 of the engine", strike=kill_engine, engines=Engines.REAL),
    Fault(name="kill-api", title="kill −9 of the API", strike=kill_api, back=_api_answers),
    Fault(name="sigterm", title="SIGTERM to the worker", strike=end_worker_softly),
    Fault(name="claims", title="all workers get every message at once, again and again", strike=send_many),
    Fault(
        name="poison",
        title="a job that kills every engine",
        strike=lambda _: None,
        size=scripted_engine.POISON,
        mid_tune=False,
        back=lambda scene: scene.job().state.is_final,
        fails="engine_crashed",
    ),
)
