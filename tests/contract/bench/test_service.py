"""The crowd and its arithmetic; the benchmark itself takes a quiet machine and minutes."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from bench import huge_model, service, service_load
from bench.service_load import Orders, Seen
from tests.support.api.factories import AUTHORIZED, TOKEN, Service, make_service
from tests.support.api.live import serving
from tests.support.api.scripted import ScriptedWorker
from tests.support.tuner.engines.fixtures import home as engines_home
from tuner import catalogue, environments


@pytest.fixture
def running(tmp_path: Path) -> tuple[Service, str]:
    """A service and a job of it."""
    made = make_service(tmp_path, rate_per_second=1e6, rate_burst=10**6)
    with TestClient(made.app, headers=AUTHORIZED) as client:
        model = client.put("/v1/models?name=net", content=b"static model").json()["id"]
        return made, str(client.post("/v1/jobs", json={"model": model}).json()["id"])


def test_the_crowd_sees_every_event_and_no_error(running: tuple[Service, str]) -> None:
    made, job = running
    with serving(made) as url:
        orders = Orders(url=url, job=job, after=0, tokens=[TOKEN], watchers=6, pages=3, rate=20)
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
    made.database.close()
    assert seen["errors"] == {}
    # Two for each of 40 trials, 7 of stages, 2 of states.
    assert seen["events"] == 6 * (2 * 40 + 7 + 2)
    # One of the six looks at times.
    assert sum(seen["lag_ms"].values()) == 2 * 40 + 7 + 1, "what was there before is not late"
    assert seen["requests"] >= 40
    assert seen["page_ms"]


def turn(trials: int, *, watched: bool) -> service.Turn:
    return service.Turn(0.0, 10.0, trials, trials / 10, 100.0, 0.5, Seen() if watched else None)


def test_the_effect_is_that_of_pairs() -> None:
    """The search slows down by half in its course, and the crowd takes a tenth."""
    turns = [turn(100, watched=False), turn(90, watched=True), turn(45, watched=True), turn(50, watched=False)]
    effect = service._effect(turns)
    assert effect["slower"] == {"percent": 10.0, "standard_error": 0.0, "pairs": 2}
    assert effect["trials_per_second"] == {"alone": 7.5, "watched": 6.75}
    assert service._effect(turns[:1])["slower"] == {}


def test_trials_count_where_they_ended() -> None:
    progress = service.Progress(at=[1.0, 2.0, 3.0, 4.0], done=[5, 6, 9, 10])
    assert progress.trials(0.0, 1.5) == 5
    assert progress.trials(1.5, 3.5) == 4
    assert progress.trials(5.0, 9.0) == 0


def test_the_rate_does_not_depend_on_where_a_batch_falls() -> None:
    at = [batch + 0.1 * trial for batch in range(0, 60, 4) for trial in range(8)]
    progress = service.Progress(at=at, done=list(range(len(at))))
    rates = [progress.rate(start, start + 30) for start in (0.0, 1.0, 2.0, 3.0)]
    assert max(rates) - min(rates) < 0.03
    assert rates[0] == pytest.approx(2.0, abs=0.03)
    assert progress.rate(100.0, 200.0) == 0.0


def test_percentiles_and_memory() -> None:
    assert service._percentiles(list(range(101))) == {"p50": 50, "p99": 99, "max": 100}
    assert service._percentiles([1.0]) == {}
    told = service._memory(2**20, [turn(1, watched=False), turn(1, watched=True), turn(1, watched=False)])
    assert told == {"start": 1.0, "first_watched": 100.0, "middle": 100.0, "end": 100.0, "most": 100.0}
    assert math.isnan(service._memory(0, [])["end"])


def test_an_event_that_comes_twice_is_an_error() -> None:
    asyncio.run(_hear_one_twice())


async def _hear_one_twice() -> None:
    seen = Seen()
    watcher = service_load.Watcher(b"", seen, None, is_timed=True)
    watcher._since = 0.0
    watcher.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
    frames = [f'data: {{"at": "{datetime.now(UTC).isoformat()}"}}\nid: {number}\n\n' for number in (1, 2, 2)]
    half = len(frames[0]) // 2
    for piece in (frames[0][:half], frames[0][half:] + frames[1], frames[2]):
        watcher.data_received(piece.encode())
    assert seen.errors == {"an event came twice or late": 1}
    assert seen.events == 3
    assert sum(seen.lag_ms.values()) == 3


@pytest.mark.engine
def test_the_huge_model_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    huge_model.write(path, 3_000_000)
    assert 3_000_000 < path.stat().st_size < 3_010_000
    program = (
        "import sys, numpy, onnx, onnxruntime\n"
        "onnx.checker.check_model(sys.argv[1], full_check=True)\n"
        "session = onnxruntime.InferenceSession(sys.argv[1])\n"
        "print(session.run(None, {'i': numpy.array([3])})[0].shape)\n"
    )
    python = environments.interpreter(catalogue.get("reference"), engines_home())
    done = subprocess.run([python, "-c", program, path], capture_output=True, text=True, check=True)
    assert done.stdout == "(1, 1024)\n"
