"""Behaviour of the service under load: ``./run bench service --json``.

A service with its own home folder tunes a convolution with MetaSchedule: one task, whose trials cost about the same
from first to last. It is measured alternately alone and with a crowd: watchers of the job's events and a steady rate of
status requests, from a separate process on the same machine. The turns are compared in pairs, so that changes in the
course of a search cancel out. A final turn has a larger crowd. Keep the machine free of other work.

The bar: the crowd costs the search at most 15 % of its trials per second; the larger crowd sees no errors, and its
status requests take less than a second at the 99th percentile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from bench import hosting, note, service_load, show
from tuner.host import catalogue, environments
from tunesmith.client import Client
from tunesmith.jobs import Job

_TOKENS = 10
"""Number of callers: a single one would reach its rate limit."""
_SETTLE_SECONDS = 2.0
_SHAPES = {"x": [1, 64, 56, 56], "w": [64, 64, 3, 3]}
_WARM_TRIALS = 100
"""Trials after which a search is no longer random and its candidates are much alike."""
_MIB = 1024 * 1024
_MOST_SLOWER = 15.0
"""Percent."""
_MOST_MILLISECONDS = 1000.0


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    for spec in catalogue.ENGINES.values():
        # The job uses a home folder without records, but the engines of the usual one.
        os.environ[environments.variable(spec)] = str(environments.interpreter(spec, home))
    with tempfile.TemporaryDirectory(prefix="tunesmith-service-") as scratch:
        os.environ["TUNESMITH_HOME"] = scratch
        with hosting.running(Path(scratch), say=note), Client() as client:
            report = _measure(client, Path(scratch), options)
    show(report)
    return 0


def _measure(client: Client, home: Path, options: argparse.Namespace) -> dict[str, Any]:
    api = _api(home)
    with _tuning(client, options) as (job, progress):
        orders = service_load.Orders(
            url=client.url,
            job=job.id,
            after=0,
            tokens=[_token(client) for _ in range(_TOKENS)],
            watchers=options.watchers,
            rate=options.rate,
        )
        turns = _turns(api, progress, orders, options)
        many = _turn(api, progress, replace(orders, watchers=options.most_watchers), options.turn, watched=True)
    slower, crowds = _slower(turns), {"crowd": [turn for turn in turns if turn.seen], "larger_crowd": [many]}
    found = {name: _crowd(each) for name, each in crowds.items()}
    larger = found["larger_crowd"]
    return {
        "watchers": options.watchers,
        "most_watchers": options.most_watchers,
        "status_requests_per_second": options.rate,
        "machine": {"cores": os.cpu_count(), "load": os.getloadavg()},
        "slower": slower,
        **found,
        "bar": {
            "slower": slower["percent"] <= _MOST_SLOWER if slower else None,
            "errors": not larger["errors"],
            "p99": larger["status_latency_ms"].get("p99", math.inf) < _MOST_MILLISECONDS,
        },
        "turns": [turn.summary() for turn in (*turns, many)],
    }


@dataclass
class SearchProgress:
    """Progress according to the job's events, each trial with the time at which it was stored."""

    last_id: int = 0
    at: list[float] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    ended: bool = False

    def follow(self, job: Job) -> None:
        for event in job.events():
            if event.kind == "progress" and event.at:
                self.done.append(event.data["trials_done"])
                self.at.append(event.at.timestamp())
            self.last_id = event.id
        self.ended = True

    def rate(self, start: float, end: float) -> float:
        """Return trials per second between two times, as the slope of a regression line.

        Trials arrive in batches, so a plain count would depend on whether one more batch just made it.
        """
        inside = [(at, done) for at, done in zip(self.at, self.done, strict=True) if start <= at < end]
        return statistics.linear_regression(*zip(*inside, strict=True)).slope if len(inside) > 2 else 0.0


@dataclass
class Turn:
    start: float
    end: float
    rate: float
    """Trials per second."""
    api_mib: float
    api_cpu_seconds: float
    seen: service_load.Seen | None

    def summary(self) -> dict[str, Any]:
        return {
            "watched": self.seen is not None,
            "seconds": round(self.end - self.start, 1),
            "trials_per_second": round(self.rate, 3),
            "api_mib": round(self.api_mib, 1),
            "api_cpu": round(self.api_cpu_seconds / (self.end - self.start), 4),
            "crowd_cpu": round(self.seen.cpu_seconds / (self.end - self.start), 4) if self.seen else 0.0,
        }


def _api(home: Path) -> psutil.Process:
    supervisor = psutil.Process(json.loads((home / "server.json").read_text())["pid"])
    return next(child for child in supervisor.children() if child.cmdline()[1:3] == ["-m", "api"])


@contextlib.contextmanager
def _tuning(client: Client, options: argparse.Namespace) -> Iterator[tuple[Job, SearchProgress]]:
    """Run a job that searches throughout; it is canceled at the end."""
    model = client.operator("conv2d", _SHAPES, attributes={"padding": 1})
    # One layout and no trial limit: a task would otherwise stop after 512 trials.
    held = {"layout": "NHWC", "n_trial": 10**6}
    seconds = 20 * options.seconds + 600
    job = client.tune(model, tuner="metaschedule", tuner_options=held, seconds=seconds, trials=10**6)
    progress = SearchProgress()
    # A client must not be shared between threads.
    with Client() as other:
        follower = threading.Thread(target=progress.follow, args=[other.job(job.id)], daemon=True)
        follower.start()
        note("waiting for the first trials")
        while len(progress.at) < _WARM_TRIALS and not progress.ended:
            time.sleep(0.5)
        try:
            yield job, progress
        finally:
            if not progress.ended:
                job.cancel()
            follower.join(60)


def _turns(
    api: psutil.Process, progress: SearchProgress, orders: service_load.Orders, options: argparse.Namespace
) -> list[Turn]:
    """Measure alone, watched, watched, alone, and so on, so that a steady drift cancels out as well."""
    turns: list[Turn] = []
    pairs = max(1, round(options.seconds / (2 * options.turn)))
    for number in range(2 * pairs):
        if progress.ended:
            note(f"the search ended early: {len(turns)} of {2 * pairs} turns")
            break
        turns.append(_turn(api, progress, orders, options.turn, watched=number % 4 in (1, 2)))
        note(f"turn {number + 1} of {2 * pairs}: {json.dumps(turns[-1].summary())}")
    return turns


def _turn(
    api: psutil.Process, progress: SearchProgress, orders: service_load.Orders, seconds: float, *, watched: bool
) -> Turn:
    with contextlib.ExitStack() as stack:
        crowd = stack.enter_context(_crowd_of(orders, progress.last_id)) if watched else None
        time.sleep(_SETTLE_SECONDS)
        start, busy = time.time(), sum(api.cpu_times()[:2])
        time.sleep(seconds)
        end, spent = time.time(), sum(api.cpu_times()[:2]) - busy
        memory = api.memory_info().rss / _MIB
        seen = _ask(crowd) if crowd else None
    # Events of the turn's last moments are still on their way.
    time.sleep(_SETTLE_SECONDS)
    return Turn(start, end, progress.rate(start, end), memory, spent, seen)


@contextlib.contextmanager
def _crowd_of(orders: service_load.Orders, after: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.service_load"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdin is not None  # noqa: S101 - both are pipes
        assert crowd.stdout is not None  # noqa: S101
        crowd.stdin.write(json.dumps({**asdict(orders), "after": after}) + "\n")
        crowd.stdin.flush()
        if crowd.stdout.readline() != "ready\n":
            raise RuntimeError("the watchers could not connect")
        yield crowd


def _ask(crowd: subprocess.Popen[str]) -> service_load.Seen:
    found = json.loads(crowd.communicate()[0])
    found |= {"errors": Counter(found["errors"])}
    return service_load.Seen(**found)


def _token(client: Client) -> str:
    draft = {"name": "bench", "scopes": ["read"]}
    return str(client._transport.post("/v1/tokens", draft).json()["token"])


def _crowd(turns: Sequence[Turn]) -> dict[str, Any]:
    seen = [turn.seen for turn in turns if turn.seen]
    latencies = [latency for each in seen for latency in each.latency_ms]
    return {
        "requests": len(latencies),
        "events_delivered": sum(each.events for each in seen),
        "errors": dict(sum((each.errors for each in seen), Counter())),
        "status_latency_ms": _percentiles(latencies),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if len(values) < 2:
        return {}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 2), "p99": round(cuts[98], 2), "max": round(max(values), 2)}


def _slower(turns: Sequence[Turn]) -> dict[str, Any]:
    """Return the slowdown of the search by the crowd: the geometric mean of the ratios of all pairs of turns."""
    ratios = []
    for pair in zip(turns[::2], turns[1::2], strict=False):
        alone, watched = sorted(pair, key=lambda turn: turn.seen is not None)
        if alone.rate > 0 and watched.rate > 0:
            ratios.append(math.log(watched.rate / alone.rate))
    if not ratios:
        return {}
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else None
    return {
        "percent": round(100 * (1 - math.exp(statistics.fmean(ratios))), 2),
        "standard_error": None if error is None else round(100 * error, 2),
        "pairs": len(ratios),
    }


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench service", description=__doc__)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--most-watchers", type=int, default=500, help="the larger crowd (default: %(default)g)")
    parser.add_argument("--rate", type=float, default=20.0, help="status requests a second (default: %(default)g)")
    parser.add_argument("--seconds", type=float, default=600.0, help="all turns together (default: %(default)g)")
    parser.add_argument(
        "--turn",
        type=float,
        default=60.0,
        help="seconds of one turn, of at least a dozen rounds (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
