"""The crowd and its arithmetic; the benchmark itself takes a quiet machine and minutes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest

from bench import service, service_load
from bench.service_load import Orders, Seen
from tests.support.api.factories import AUTHORIZED, TOKEN, open_service
from tests.support.api.live import serving
from tests.support.api.scripted import ScriptedWorker


def test_the_crowd_sees_every_event_and_no_error(tmp_path: Path) -> None:
    with open_service(tmp_path) as made, serving(made) as url:
        with httpx.Client(base_url=url, headers=AUTHORIZED, trust_env=False) as client:
            model = client.put("/v1/models?name=net", content=b"static model").json()["id"]
            job = client.post("/v1/jobs", json={"model": model}).json()["id"]
        orders = Orders(url=url, job=job, after=0, tokens=[TOKEN], watchers=6, rate=20)
        crowd = subprocess.Popen(
            [sys.executable, "-m", "bench.service_load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        assert crowd.stdin
        assert crowd.stdout
        crowd.stdin.write(json.dumps(asdict(orders)) + "\n")
        crowd.stdin.flush()
        assert crowd.stdout.readline() == "ready\n"
        ScriptedWorker(made, pace=0.05, trials=10).begin(job)
        time.sleep(1.0)
        seen = json.loads(crowd.communicate()[0])
    assert seen["errors"] == {}
    # One for each of 40 trials, 7 of stages, 2 of states.
    assert seen["events"] == 6 * (40 + 7 + 2)
    assert len(seen["latency_ms"]) >= 40


def turn(rate: float, *, watched: bool) -> service.Turn:
    return service.Turn(0.0, 10.0, rate, 100.0, 0.5, Seen() if watched else None)


def test_the_effect_is_that_of_pairs() -> None:
    """The search slows down by half in its course, and the crowd takes a tenth."""
    turns = [turn(10.0, watched=False), turn(9.0, watched=True), turn(4.5, watched=True), turn(5.0, watched=False)]
    assert service._slower(turns) == {"percent": 10.0, "standard_error": 0.0, "pairs": 2}
    assert service._slower(turns[:1]) == {}


def test_the_rate_does_not_depend_on_where_a_batch_falls() -> None:
    at = [batch + 0.1 * trial for batch in range(0, 60, 4) for trial in range(8)]
    progress = service.SearchProgress(at=at, done=list(range(len(at))))
    rates = [progress.rate(start, start + 30) for start in (0.0, 1.0, 2.0, 3.0)]
    assert max(rates) - min(rates) < 0.03
    assert rates[0] == pytest.approx(2.0, abs=0.03)
    assert progress.rate(100.0, 200.0) == 0.0


def test_percentiles() -> None:
    assert service._percentiles(list(range(101))) == {"p50": 50, "p99": 99, "max": 100}
    assert service._percentiles([1.0]) == {}


def test_an_event_that_comes_twice_is_an_error() -> None:
    asyncio.run(_hear_one_twice())


async def _hear_one_twice() -> None:
    seen, reader = Seen(), asyncio.StreamReader()
    for number in (1, 2, 2):
        reader.feed_data(f"event: note\ndata: {{}}\nid: {number}\n\n".encode())
    reader.feed_eof()
    await service_load.count(reader, seen)
    assert seen.errors == {"an event came twice or late": 1}
    assert seen.events == 3
