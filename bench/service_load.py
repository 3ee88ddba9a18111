"""The crowd of ``./run bench service``: watchers of a job's events and a steady stream of status requests.

``python -m bench.service_load`` is a process of its own, so that its work is nobody else's: it reads what to do as one
line of JSON, says ``ready`` once everyone is connected, and prints what it saw when its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

_CONNECTING_AT_ONCE = 20
_POLLING_CONNECTIONS = 10
_EVENT = re.compile(rb'"at": "([^"]+)"}\nid: (\d+)\n')


@dataclass(frozen=True, kw_only=True)
class Orders:
    url: str
    job: str
    after: int
    """The event after which to watch."""
    tokens: Sequence[str]
    watchers: int
    rate: float
    """Status requests a second, of all together."""


@dataclass
class Seen:
    events: int = 0
    requests: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    lag_ms: Counter[int] = field(default_factory=Counter)
    """From an event's time to its arrival."""
    latency_ms: list[float] = field(default_factory=list)
    """From the moment at which a request was due to the end of its answer."""
    cpu_seconds: float = 0.0


class Watcher(asyncio.Protocol):
    def __init__(self, request: bytes, seen: Seen) -> None:
        self._request = request
        self._seen = seen
        self._since = time.time()
        self._last_id = 0
        self._rest = b""
        self.connected = asyncio.get_running_loop().create_future()
        self.leaving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what TCP gives
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.time()
        if not self.connected.done():
            self.connected.set_result(None)
            if not data.startswith(b"HTTP/1.1 200"):
                self._seen.errors[f"watcher: {data[:40]!r}"] += 1
        data = self._rest + data
        end = 0
        for match in _EVENT.finditer(data):
            end = match.end()
            self._take(datetime.fromisoformat(match[1].decode()).timestamp(), int(match[2]), now)
        self._rest = data[end:][-4096:]

    def _take(self, at: float, event_id: int, now: float) -> None:
        if event_id <= self._last_id:
            self._seen.errors["an event came twice or late"] += 1
        self._last_id = event_id
        self._seen.events += 1
        # What had happened before the watcher came tells nothing of how long events take.
        if at > self._since:
            self._seen.lag_ms[round(1e3 * (now - at))] += 1

    def connection_lost(self, _reason: Exception | None) -> None:
        if not self.leaving:
            self._seen.errors["a stream ended early"] += 1
        if not self.connected.done():
            self.connected.set_result(None)


async def main() -> None:
    orders = Orders(**json.loads(sys.stdin.readline()))
    seen = Seen()
    watchers = await _gather(orders, seen)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    started = time.process_time()
    polling = asyncio.create_task(_poll(orders, seen))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    seen.cpu_seconds = time.process_time() - started
    for watcher in watchers:
        watcher.leaving = True
        watcher.transport.close()
    json.dump(vars(seen), sys.stdout)
    sys.stdout.write("\n")


async def _gather(orders: Orders, seen: Seen) -> list[Watcher]:
    loop, parts = asyncio.get_running_loop(), urlsplit(orders.url)
    watchers: list[Watcher] = []
    while len(watchers) < orders.watchers:
        come = []
        for number in range(min(_CONNECTING_AT_ONCE, orders.watchers - len(watchers))):
            request = _request(orders, f"/v1/jobs/{orders.job}/events?after={orders.after}", number)
            _, watcher = await loop.create_connection(
                lambda request=request: Watcher(request, seen), parts.hostname, parts.port
            )
            come.append(watcher)
        await asyncio.gather(*(watcher.connected for watcher in come))
        watchers += come
    return watchers


async def _poll(orders: Orders, seen: Seen) -> None:
    """Open loop: a request is due when it is due, however long others take."""
    connections = [Poller(orders, seen, number) for number in range(_POLLING_CONNECTIONS)]
    async with asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(connection.run())
        started = time.perf_counter()
        for number in range(sys.maxsize):
            due = started + number / orders.rate
            await asyncio.sleep(due - time.perf_counter())
            connections[number % len(connections)].due.put_nowait(due)


class Poller:
    def __init__(self, orders: Orders, seen: Seen, number: int) -> None:
        parts = urlsplit(orders.url)
        self._address = parts.hostname, parts.port
        self._request = _request(orders, f"/v1/jobs/{orders.job}", number)
        self._seen = seen
        self.due: asyncio.Queue[float] = asyncio.Queue()

    async def run(self) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            while True:
                due = await self.due.get()
                writer.write(self._request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                self._seen.requests += 1
                self._seen.latency_ms.append(round(1e3 * (time.perf_counter() - due), 2))
                if not head.startswith(b"HTTP/1.1 200"):
                    self._seen.errors[f"status: {head[:40]!r}"] += 1
        except (OSError, asyncio.IncompleteReadError) as error:
            self._seen.errors[f"status: {error}"] += 1
        finally:
            writer.close()


def _request(orders: Orders, path: str, number: int) -> bytes:
    token, host = orders.tokens[number % len(orders.tokens)], urlsplit(orders.url).netloc
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


if __name__ == "__main__":
    asyncio.run(main())
