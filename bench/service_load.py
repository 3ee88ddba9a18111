"""The crowd of ``./run bench service``: open pages of a job, programs that watch its events, a steady stream of status
requests.

``python -m bench.service_load`` is a process of its own, so that its work is nobody else's: it reads what to do as one
line of JSON, says ``ready`` once everyone is connected, and prints what it saw when its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from urllib.parse import urlsplit

_CONNECTING_AT_ONCE = 20
_CONNECTIONS = 10
_LEAST_PAUSE = 2.5
_PAUSE_A_PAGE = 0.4
_PART = "HX-Request: true\r\nAccept: text/html\r\n"
_ID = re.compile(rb"\nid: (\d+)\n")
_TIME = re.compile(rb'"at": "([^"]+)"}\nid: ')
_TIMED = 10
"""One in so many watchers looks how old its events are: the crowd is to take little from those it watches."""


@dataclass(frozen=True, kw_only=True)
class Orders:
    url: str
    job: str
    after: int
    """The event after which to watch."""
    tokens: Sequence[str]
    watchers: int
    pages: int
    """How many of the watchers are the job's page in a browser, which looks at the whole page now and then."""
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
    """Of status requests, from the moment at which one was due to the end of its answer."""
    page_ms: list[float] = field(default_factory=list)
    """The same of looks at the page."""
    cpu_seconds: float = 0.0


class Watcher(asyncio.Protocol):
    def __init__(self, request: bytes, seen: Seen, page: Page | None, *, is_timed: bool) -> None:
        self._request = request
        self._is_timed = is_timed
        self._seen = seen
        self._page = page
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
        end = data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0
        whole, self._rest = data[:end], data[end:]
        ids = [int(found) for found in _ID.findall(whole)]
        if not ids:
            return
        if not all(before < after for before, after in pairwise([self._last_id, *ids])):
            self._seen.errors["an event came twice or late"] += 1
        self._last_id = ids[-1]
        self._seen.events += len(ids)
        if self._is_timed:
            self._note_ages(whole, now)
        if self._page:
            self._page.happened()

    def _note_ages(self, events: bytes, now: float) -> None:
        for found in _TIME.findall(events):
            at = datetime.fromisoformat(found.decode()).timestamp()
            # What had happened before the watcher came tells nothing of how long events take.
            if at > self._since:
                self._seen.lag_ms[round(1e3 * (now - at))] += 1

    def connection_lost(self, _reason: Exception | None) -> None:
        if not self.leaving:
            self._seen.errors["a stream ended early"] += 1
        if not self.connected.done():
            self.connected.set_result(None)


class Page:
    """What the page's own script does: after an event it looks again, as often as the server lets it."""

    def __init__(self, orders: Orders, seen: Seen, number: int, connections: Sequence[Connection]) -> None:
        self._orders, self._seen, self._number = orders, seen, number
        self._connection = connections[number % len(connections)]
        # In the middle of its pause, like a page that has been open for a while.
        chance = random.Random(number)  # noqa: S311 - a time to wait
        self._pause = chance.uniform(0, max(_LEAST_PAUSE, _PAUSE_A_PAGE * orders.pages))
        self._known = ""
        self._is_due = False

    def happened(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(self._pause, self._look)

    def _look(self) -> None:
        path, now = f"/jobs/{self._orders.job}", time.perf_counter()
        self._connection.ask(now, _request(self._orders, path, self._number, _PART), self._looked)
        self._connection.ask(now, _request(self._orders, f"{path}/curve.json{self._known}", self._number), self._drew)

    def _looked(self, head: bytes, _body: bytes, milliseconds: float) -> None:
        self._is_due = False
        self._seen.page_ms.append(milliseconds)
        pause = re.search(rb"(?i)\r\ntunesmith-pause: ([0-9.]+)", head)
        self._pause = float(pause[1]) if pause else _LEAST_PAUSE

    def _drew(self, _head: bytes, body: bytes, milliseconds: float) -> None:
        self._seen.page_ms.append(milliseconds)
        curve = re.search(rb'"basis":\s?"([^"]+)",\s?"trials":\s?(\d+)', body[:400])
        self._known = f"?after={curve[2].decode()}&basis={curve[1].decode()}" if curve else ""


Take = Callable[[bytes, bytes, float], None]
"""Gets an answer's head and body, and milliseconds since it was due."""


class Connection(asyncio.Protocol):
    """One request after the other, on a connection that is made anew when the server has closed it unused."""

    def __init__(self, orders: Orders, seen: Seen) -> None:
        parts = urlsplit(orders.url)
        self._address = parts.hostname, parts.port
        self._seen = seen
        self._asked: deque[tuple[float, bytes, Take]] = deque()
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[object] | None = None
        self._is_asking = False
        self._answer = b""

    def ask(self, due: float, request: bytes, take: Take) -> None:
        self._asked.append((due, request, take))
        self._next()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what TCP gives
        self._transport, self._connecting = transport, None
        self._next()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if not end or len(body) < int(length[1] if length else 0):
            return
        due, request, take = self._asked.popleft()
        if not head.startswith(b"HTTP/1.1 200"):
            self._seen.errors[f"{request[:60]!r}: {head[:40]!r}"] += 1
        self._answer, self._is_asking = b"", False
        take(head, body, round(1e3 * (time.perf_counter() - due), 2))
        self._next()

    def connection_lost(self, reason: Exception | None) -> None:
        if self._is_asking:
            self._seen.errors[f"connection: {reason or 'closed'}"] += 1
            self._asked.popleft()
        self._transport, self._answer, self._is_asking = None, b"", False
        self._next()

    def _next(self) -> None:
        if not self._asked or self._is_asking or self._connecting:
            return
        if self._transport is None or self._transport.is_closing():
            connecting = asyncio.get_running_loop().create_connection(lambda: self, *self._address)
            self._connecting = asyncio.ensure_future(connecting)
            return
        self._is_asking = True
        self._transport.write(self._asked[0][1])


async def main() -> None:
    orders = Orders(**json.loads(sys.stdin.readline()))
    seen = Seen()
    polling, looking = ([Connection(orders, seen) for _ in range(_CONNECTIONS)] for _ in range(2))
    watchers = await _gather(orders, seen, looking)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    started = time.process_time()
    asking = asyncio.create_task(_poll(orders, seen, polling))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    asking.cancel()
    seen.cpu_seconds = time.process_time() - started
    for watcher in watchers:
        watcher.leaving = True
        watcher.transport.close()
    json.dump(vars(seen), sys.stdout)
    sys.stdout.write("\n")


async def _gather(orders: Orders, seen: Seen, connections: Sequence[Connection]) -> list[Watcher]:
    loop, parts = asyncio.get_running_loop(), urlsplit(orders.url)
    watchers: list[Watcher] = []
    while len(watchers) < orders.watchers:
        come = []
        for number in range(len(watchers), min(len(watchers) + _CONNECTING_AT_ONCE, orders.watchers)):
            request = _request(orders, f"/v1/jobs/{orders.job}/events?after={orders.after}", number)
            page = Page(orders, seen, number, connections) if number < orders.pages else None
            watcher = Watcher(request, seen, page, is_timed=number % _TIMED == 0)
            await loop.create_connection(lambda watcher=watcher: watcher, parts.hostname, parts.port)
            come.append(watcher)
        await asyncio.gather(*(watcher.connected for watcher in come))
        watchers += come
    return watchers


async def _poll(orders: Orders, seen: Seen, connections: Sequence[Connection]) -> None:
    """Open loop: a request is due when it is due, however long others take."""

    def take(_head: bytes, _body: bytes, milliseconds: float) -> None:
        seen.requests += 1
        seen.latency_ms.append(milliseconds)

    requests = [_request(orders, f"/v1/jobs/{orders.job}", number) for number in range(len(orders.tokens))]
    started = time.perf_counter()
    for number in range(sys.maxsize):
        due = started + number / orders.rate
        await asyncio.sleep(due - time.perf_counter())
        connections[number % len(connections)].ask(due, requests[number % len(requests)], take)


def _request(orders: Orders, path: str, number: int, more: str = "") -> bytes:
    token, host = orders.tokens[number % len(orders.tokens)], urlsplit(orders.url).netloc
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{more}\r\n".encode()


if __name__ == "__main__":
    asyncio.run(main())
