"""Messages that nobody reads go when they are void, by a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from celery import Celery
from redis import Redis as Client

from api.publishing import CeleryPublisher
from domain import dispatch
from tests.support.servers.redis import Redis
from tests.support.worker.fixtures import Bench
from tests.unit.worker.test_queues import come
from worker import app as worker_app
from worker import clock, reaper, void_messages

EXPIRES = 120.0


@pytest.fixture
def broker(redis_server: Redis) -> Iterator[Client]:
    """Empty; of the database that the broker's URL names."""
    client = Client(port=redis_server.port, db=7)
    client.flushdb()
    yield client
    client.flushdb()
    client.close()


@pytest.fixture
def app(redis_server: Redis, broker: Client) -> Iterator[Celery]:
    made = Celery("test", broker=redis_server.url(database=7))
    made.conf.update(broker_transport_options=dispatch.transport_options(), task_default_queue=dispatch.QUEUE)
    yield made
    made.close()


def after(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def lengths(broker: Client) -> dict[str, int]:
    """Of the lists, by queue and priority."""
    lists = [key.decode() for key in broker.scan_iter(_type="list")]
    return {key.replace("\x06\x16", " "): int(broker.llen(key)) for key in lists}  # type: ignore[arg-type]


def test_the_queue_of_workers_that_are_gone_becomes_empty(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, app: Celery, broker: Client, redis_server: Redis
) -> None:
    """Which is read by those that are like the one that has been there."""
    queue = dispatch.own_queue(come(bench, monkeypatch, "relay").announce())
    monkeypatch.setattr(dispatch, "queue_of", lambda *_: queue)
    job = bench.get(bench.job(priority=3))
    api = CeleryPublisher(redis_server.url(database=7))
    api.publish(job)
    api.close()
    for _ in range(1200):
        worker_app.publisher(app, expires=EXPIRES)(job, [])
    queue += " 3"
    assert lengths(broker) == {queue: 1201}
    remove = partial(void_messages.remove, app)  # as a worker gives it to its reaper
    assert remove(after(EXPIRES - 60)) == 0
    assert remove(after(EXPIRES + 1)) == 1201, "with the older one of the API"
    assert lengths(broker) == {}


def test_what_is_not_void_stays_and_so_does_what_is_not_ours(bench: Bench, app: Celery, broker: Client) -> None:
    broker.rpush("tunesmith-of-others", "not JSON")
    broker.rpush("tunesmith.odd", "not JSON", '{"headers": {"expires": null}}', '{"headers": {"expires": "soon"}}')
    broker.set("tunesmith.text", "no list")
    urgent, other = bench.get(bench.job(priority=0)), bench.get(bench.job(priority=9))
    for expires in (10.0, 20.0, 300.0, 400.0):
        for job in (urgent, other):
            worker_app.publisher(app, expires=expires)(job, [])
    worker_app.publisher(app, expires=300.0)(urgent, [])
    before = lengths(broker)
    assert (before["tunesmith"], before["tunesmith 9"]) == (5, 4)
    assert void_messages.remove(app, now=after(60)) == 4
    assert lengths(broker) == {**before, "tunesmith": 3, "tunesmith 9": 2}
    assert broker.get("tunesmith.text") == b"no list"


def test_calls_for_help_take_no_job_with_them(bench: Bench, app: Celery, broker: Client) -> None:
    """They are void within seconds, and the most urgent of jobs are in the same list."""
    app.send_task(dispatch.HELP_JOB, args=["j-1"], queue="tunesmith", priority=9, expires=5.0)
    worker_app.publisher(app, expires=300.0)(bench.get(bench.job(priority=9)), [])
    app.send_task(dispatch.HELP_JOB, args=["j-1"], queue="tunesmith", priority=9, expires=5.0)
    before = lengths(broker)
    assert sum(before.values()) == 3
    assert void_messages.remove(app, now=after(60)) == 0
    assert lengths(broker) == before


def test_one_of_all_workers_looks_every_ten_minutes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[datetime] = []

    def remove(now: datetime) -> int:
        looked.append(now)
        return 1

    start = clock.now()
    for minutes in (0, 1, 9, 10, 19, 21):
        monkeypatch.setattr(clock, "now", lambda minutes=minutes: start + timedelta(minutes=minutes))
        for _ in range(2):
            reaper.clear_queues(bench.runtime(), remove)
    assert [round((each - start).total_seconds() / 60) for each in looked] == [0, 10, 21]
