"""Whatever happens in whatever order, every watcher sees every event of its job once, in order."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.jobs.events import EventHub
from domain.jobs import EventKind
from storage import events, jobs
from tests.support.api.factories import Service, open_service
from tests.support.storage.factories import add_job

_JOBS = 2
_WATCHERS = 3


class SteppedHub(EventHub):
    """Looks when the test says so, and keeps so little that watchers fall behind at once."""

    async def _keep_looking(self) -> None:
        pass


class Watching:
    """A browser that takes what comes only when it is let, and comes back behind what it saw last."""

    def __init__(self, hub: EventHub, job: str) -> None:
        self._hub = hub
        self.job = job
        self.seen: list[int] = []
        self.ended = False
        self._may_read = asyncio.Semaphore(0)
        self.connect()

    def connect(self) -> None:
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        last_id = self.seen[-1] if self.seen else 0
        async with contextlib.aclosing(self._hub.watch(self.job, last_id)) as events:
            async for event in events:
                await self._may_read.acquire()
                self.seen.append(int(event.rpartition(b"id: ")[2]))
        self.ended = True

    def let(self, pieces: int) -> None:
        for _ in range(pieces):
            self._may_read.release()

    async def disconnect(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._may_read = asyncio.Semaphore(0)

    async def finish(self) -> None:
        self.let(1000)
        if self._task.cancelled():
            self.connect()
        await asyncio.wait_for(self._task, 10)


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("happen"), st.integers(0, _JOBS - 1), st.integers(1, 9)),
        st.tuples(st.just("look"), st.just(0), st.just(0)),
        st.tuples(st.just("let"), st.integers(0, _WATCHERS - 1), st.integers(1, 3)),
        st.tuples(st.just("reconnect"), st.integers(0, _WATCHERS - 1), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, _JOBS - 1), st.just(0)),
    ),
    max_size=40,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with open_service(tmp_path_factory.mktemp("hub")) as made:
        yield made


@settings(max_examples=40, deadline=None)
@given(steps=_steps)
def test_every_watcher_sees_every_event_once(shared: Service, steps: list[tuple[str, int, int]]) -> None:
    asyncio.run(_play(shared, steps))


async def _play(service: Service, steps: list[tuple[str, int, int]]) -> None:
    hub = SteppedHub(service.database, poll_seconds=1, stopping=threading.Event(), keep=4, batch=3)
    names = [_job(service) for _ in range(_JOBS)]
    watchers = [Watching(hub, names[number % _JOBS]) for number in range(_WATCHERS)]
    for what, which, many in steps:
        match what:
            case "happen":
                _happen(service, names[which], many)
            case "look":
                await hub.look()
            case "let":
                watchers[which].let(many)
            case "reconnect":
                await watchers[which].disconnect()
                watchers[which].connect()
            case "end":
                _end(service, names[which])
        for _ in range(5):
            await asyncio.sleep(0)
    await _see_the_end(service, hub, names, watchers)
    for watcher in watchers:
        assert watcher.ended
        assert watcher.seen == _ids(service, watcher.job)


async def _see_the_end(service: Service, hub: EventHub, names: list[str], watchers: list[Watching]) -> None:
    for name in names:
        _end(service, name)
    ends = asyncio.gather(*(watcher.finish() for watcher in watchers))
    while not ends.done():
        await hub.look()
        await asyncio.sleep(0.001)
    await ends


def _job(service: Service) -> str:
    with service.database.transaction() as session:
        return add_job(session).id


def _happen(service: Service, job: str, many: int) -> None:
    with service.database.transaction() as session:
        # Nothing happens to a job that has ended.
        for number in range(0 if jobs.get(session, job).state.is_final else many):
            events.append(session, job, EventKind.NOTE, {"message": str(number)}, now=datetime.now(UTC))


def _end(service: Service, job: str) -> None:
    with service.database.transaction() as session:
        if not jobs.get(session, job).state.is_final:
            jobs.request_cancel(session, job, now=datetime.now(UTC))


def _ids(service: Service, job: str) -> list[int]:
    with service.database.reading() as session:
        return [event.id for event in events.after(session, job, 0, 10_000)]
