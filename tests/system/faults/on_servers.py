"""Faults of the servers that the service needs, and of the network between them."""

from __future__ import annotations

from domain.jobs import JobState
from tests.support.topology.engines import Engines
from tests.system.faults.scene import Scene
from tests.system.faults.trying import Fault

_AWAY_SECONDS = 3.0
VISIBILITY_SECONDS = 3
"""The topology's setting, of 12 hours in production."""


def kill_broker(scene: Scene) -> None:
    """A job is queued before and one after; neither may need the other's message."""
    scene.topology.redis.kill()
    scene.others.append(scene.submit())
    scene.pass_time(_AWAY_SECONDS)
    scene.topology.redis.start()


def freeze_broker(scene: Scene) -> None:
    scene.others.append(scene.submit())
    scene.topology.redis.freeze()
    scene.pass_time(2 * VISIBILITY_SECONDS + 1)
    scene.topology.redis.thaw()


def restart_database(scene: Scene) -> None:
    """By turns orderly and by ``kill -9`` of all its processes."""
    server = scene.topology.postgresql
    if scene.number % 2 == 0:
        server.stop()
    else:
        server.kill()
    scene.pass_time(1.0)
    server.start()


def cut_connections(scene: Scene) -> None:
    """Every connection to every server is reset, and no new one comes about for a while."""
    topology = scene.topology
    proxies = (topology.postgresql_proxy, topology.redis_proxy, topology.s3_proxy)
    for proxy in proxies:
        proxy.refusing = True
        proxy.cut()
    scene.pass_time(_AWAY_SECONDS)
    for proxy in proxies:
        proxy.refusing = False


def refuse_writes(scene: Scene) -> None:
    """By turns as an overloaded store answers and as one that lacks a right does, until the job has met it."""
    proxy = scene.topology.s3_proxy
    proxy.refused, proxy.answer_writes = 0, 503 if scene.number % 2 == 0 else 403
    scene.wait(lambda: proxy.refused > 0 or scene.job().state.is_final, "the job writes to S3")
    scene.pass_time(_AWAY_SECONDS)
    proxy.answer_writes = None
    scene.notes.append(f"{proxy.refused} writes refused")


def _others_run(scene: Scene) -> bool:
    """Whether the jobs that were queued meanwhile have begun, or ended."""
    return all(scene.job(other).state is not JobState.QUEUED for other in scene.others)


def _ended(scene: Scene) -> bool:
    return scene.job().state.is_final


FAULTS = (
    Fault(name="kill-broker", title="broker killed, and back", strike=kill_broker, engines=Engines.REAL),
    Fault(
        name="freeze-broker",
        title="broker frozen beyond the visibility timeout",
        strike=freeze_broker,
        back=_others_run,
    ),
    Fault(name="restart-database", title="PostgreSQL restarted", strike=restart_database, engines=Engines.REAL),
    Fault(name="cut", title="all connections cut, none for 3 s", strike=cut_connections),
    Fault(name="refuse-writes", title="S3 refuses writes", strike=refuse_writes, back=_ended),
)
