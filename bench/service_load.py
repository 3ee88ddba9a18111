"""Load generator of ``./run bench service``: watchers of a job's events, and a steady stream of status requests.

``python -m bench.service_load`` is a separate process, so that its CPU time can be told apart. It reads its orders as
one line of JSON, prints ``ready`` once all watchers are connected, and prints its results when its standard input ends.
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
from urllib.parse import urlsplit

_CONNECTING_AT_ONCE = 20
_CONNECTIONS = 10


@dataclass(frozen=True, kw_only=True)
class Orders:
    url: str
    job: str
    after: int
    """Id of the event after which to watch."""
    tokens: Sequence[str]
    watchers: int
    rate: float
    """Status requests per second, in total."""

    def request(self, path: str, number: int) -> bytes:
        token, host = self.tokens[number % len(self.tokens)], urlsplit(self.url).netloc
        return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self.url)
        return await asyncio.open_connection(parts.hostname, parts.port)


@dataclass
class Seen:
    events: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    latency_ms: list[float] = field(default_factory=list)
    """Latency of status requests, from the time at which one was due to the end of its answer."""
    cpu_seconds: float = 0.0


async def watch(orders: Orders, seen: Seen, number: int, connected: asyncio.Semaphore) -> None:
    async with connected:
        reader, writer = await orders.connect()
        writer.write(orders.request(f"/v1/jobs/{orders.job}/events?after={orders.after}", number))
        head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        seen.errors[f"watcher: {head[:40]!r}"] += 1
    await count(reader, seen)
    seen.errors["a stream ended early"] += 1


async def count(reader: asyncio.StreamReader, seen: Seen) -> None:
    """Count events until the stream ends; a repeated or out-of-order event is an error."""
    last_id = 0
    async for line in reader:
        if line.startswith(b"id: "):
            seen.events += 1
            if int(line[4:]) <= last_id:
                seen.errors["an event came twice or late"] += 1
            last_id = int(line[4:])


async def ask(orders: Orders, seen: Seen, due: asyncio.Queue[tuple[float, bytes]]) -> None:
    """Send requests one after the other on one connection."""
    reader, writer = await orders.connect()
    while True:
        at, request = await due.get()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        seen.latency_ms.append(round(1e3 * (time.perf_counter() - at), 2))
        if not head.startswith(b"HTTP/1.1 200"):
            seen.errors[f"status: {head[:40]!r}"] += 1


async def poll(orders: Orders, due: asyncio.Queue[tuple[float, bytes]]) -> None:
    """Open loop: requests become due at a fixed rate, however long others take."""
    started = time.perf_counter()
    for number in range(sys.maxsize):
        at = started + number / orders.rate
        await asyncio.sleep(at - time.perf_counter())
        due.put_nowait((at, orders.request(f"/v1/jobs/{orders.job}", number)))


async def main() -> None:
    orders, seen = Orders(**json.loads(sys.stdin.readline())), Seen()
    due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    connecting = asyncio.Semaphore(_CONNECTING_AT_ONCE)
    tasks = [asyncio.create_task(watch(orders, seen, number, connecting)) for number in range(orders.watchers)]
    # The semaphore is fair, so all of it is acquired only when all others are connected, or nearly so.
    await asyncio.sleep(0)
    for _ in range(_CONNECTING_AT_ONCE):
        await connecting.acquire()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    started = time.process_time()
    tasks += [asyncio.create_task(ask(orders, seen, due)) for _ in range(_CONNECTIONS)]
    tasks.append(asyncio.create_task(poll(orders, due)))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    seen.cpu_seconds = time.process_time() - started
    for task in tasks:
        if task.done():
            seen.errors[f"{task.exception()!r}"] += 1
        task.cancel()
    json.dump(vars(seen), sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    asyncio.run(main())
