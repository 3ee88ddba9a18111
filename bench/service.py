"""How the service bears a crowd: ``./run bench service --json``.

A service on a home folder of its own tunes a convolution with MetaSchedule: one task, whose trials cost about the same
from first to last. In turns it is left alone and watched: by many pages of the job in browsers (streams of events, and
looks at the page as its script has them) and by a steady rate of status requests, from a process of their own on the
same machine. The turns are compared in pairs, so that what changes in the course of a search cancels out. Then a large
upload and a large download. Keep the machine free of other work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench import hosting, service_load, service_transfers
from tuner import catalogue, environments
from tunesmith.client import Client
from tunesmith.jobs import Job

_TOKENS = 10
"""As many callers: one alone would meet its own rate limit."""
_SETTLE_SECONDS = 2.0
_SHAPES = {"x": [1, 64, 56, 56], "w": [64, 64, 3, 3]}
_WARM_TRIALS = 100
"""After which a search is no longer random, and its candidates are much alike."""
_MIB = 1024 * 1024


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    for spec in catalogue.ENGINES.values():
        # The job gets a home folder without records, and the engines of the usual one.
        os.environ[environments.variable(spec)] = str(environments.interpreter(spec, home))
    with tempfile.TemporaryDirectory(prefix="tunesmith-service-") as scratch:
        os.environ["TUNESMITH_HOME"] = scratch
        with hosting.running(Path(scratch), say=_note), Client() as client:
            report = _measure(client, Path(scratch), options)
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0


def _measure(client: Client, home: Path, options: argparse.Namespace) -> dict[str, Any]:
    api = _api(home)
    at_start = api.memory_info().rss
    with _tuning(client, options) as (job, progress):
        turns = _turns(client, api, job, progress, options)
    report: dict[str, Any] = {
        "watchers": options.watchers,
        "of_them_pages": options.watchers if options.pages is None else options.pages,
        "status_requests_per_second": options.rate,
        "machine": {"cores": os.cpu_count(), "cpu": platform.processor() or platform.machine()},
        **_crowd([turn for turn in turns if turn.seen]),
        "api_mib": _memory(at_start, turns),
        **_effect(turns),
    }
    if options.gigabytes:
        size = int(options.gigabytes * 1024**3)
        report["transfer"] = service_transfers.measure(client, api, home, job.id, size)
    report["turns"] = [turn.summary() for turn in turns]
    return report


@dataclass
class Progress:
    """What the job's own events tell, each trial with the time at which it was stored."""

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

    def trials(self, start: float, end: float) -> int:
        inside = [done for at, done in zip(self.at, self.done, strict=True) if start <= at < end]
        before = [done for at, done in zip(self.at, self.done, strict=True) if at < start]
        return (inside[-1] - (before[-1] if before else 0)) if inside else 0

    def rate(self, start: float, end: float) -> float:
        """Trials a second, as the slope of a line through what was stored when: trials come in batches, and a count of
        those in a turn depends on whether one more batch just made it."""
        inside = [(at, done) for at, done in zip(self.at, self.done, strict=True) if start <= at < end]
        return statistics.linear_regression(*zip(*inside, strict=True)).slope if len(inside) > 2 else 0.0


@dataclass
class Turn:
    start: float
    end: float
    trials: int
    rate: float
    """Trials a second."""
    api_mib: float
    api_cpu_seconds: float
    seen: service_load.Seen | None

    def summary(self) -> dict[str, Any]:
        return {
            "watched": self.seen is not None,
            "seconds": round(self.end - self.start, 1),
            "trials": self.trials,
            "trials_per_second": round(self.rate, 3),
            "api_mib": round(self.api_mib, 1),
            "api_cpu": round(self.api_cpu_seconds / (self.end - self.start), 4),
            "crowd_cpu": round(self.seen.cpu_seconds / (self.end - self.start), 4) if self.seen else 0.0,
        }


def _api(home: Path) -> psutil.Process:
    supervisor = psutil.Process(json.loads((home / "server.json").read_text())["pid"])
    return next(child for child in supervisor.children() if child.cmdline()[1:3] == ["-m", "api"])


@contextlib.contextmanager
def _tuning(client: Client, options: argparse.Namespace) -> Iterator[tuple[Job, Progress]]:
    """A job that searches all the while; canceled at the end."""
    model = client.operator("conv2d", _SHAPES, attributes={"padding": 1})
    # One layout, and no end: a task is given up after 512 trials otherwise.
    held = {"layout": "NHWC", "n_trial": 10**6}
    seconds = 20 * options.seconds + 600
    job = client.tune(model, tuner="metaschedule", tuner_options=held, seconds=seconds, trials=10**6)
    progress = Progress()
    # A client is for one thread.
    with Client() as other:
        follower = threading.Thread(target=progress.follow, args=[other.job(job.id)], daemon=True)
        follower.start()
        _note("waiting for the first trials")
        while len(progress.at) < _WARM_TRIALS and not progress.ended:
            time.sleep(0.5)
        try:
            yield job, progress
        finally:
            if not progress.ended:
                job.cancel()
            follower.join(60)


def _turns(
    client: Client, api: psutil.Process, job: Job, progress: Progress, options: argparse.Namespace
) -> list[Turn]:
    """Left alone, watched, watched, left alone, and so on: a steady drift cancels out as well."""
    orders = service_load.Orders(
        url=client.url,
        job=job.id,
        after=0,
        tokens=[_token(client) for _ in range(_TOKENS)],
        watchers=options.watchers,
        pages=options.watchers if options.pages is None else options.pages,
        rate=options.rate,
    )
    turns: list[Turn] = []
    pairs = max(1, round(options.seconds / (2 * options.turn)))
    for number in range(2 * pairs):
        if progress.ended:
            _note(f"the search ended early: {len(turns)} of {2 * pairs} turns")
            break
        turns.append(_turn(api, progress, orders, options.turn, watched=number % 4 in (1, 2)))
        _note(f"turn {number + 1} of {2 * pairs}: {json.dumps(turns[-1].summary())}")
    return turns


def _turn(
    api: psutil.Process, progress: Progress, orders: service_load.Orders, seconds: float, *, watched: bool
) -> Turn:
    with contextlib.ExitStack() as stack:
        crowd = stack.enter_context(_crowd_of(orders, progress.last_id)) if watched else None
        time.sleep(_SETTLE_SECONDS)
        start, busy = time.time(), sum(api.cpu_times()[:2])
        time.sleep(seconds)
        end, spent = time.time(), sum(api.cpu_times()[:2]) - busy
        memory = api.memory_info().rss / _MIB
        seen = _ask(crowd) if crowd else None
    # Events of the turn's last moments are on their way.
    time.sleep(_SETTLE_SECONDS)
    return Turn(start, end, progress.trials(start, end), progress.rate(start, end), memory, spent, seen)


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
    found |= {"lag_ms": Counter({int(lag): count for lag, count in found["lag_ms"].items()})}
    return service_load.Seen(**found)


def _token(client: Client) -> str:
    draft = {"name": "bench", "scopes": ["read"]}
    return str(client._transport.post("/v1/tokens", draft).json()["token"])


def _crowd(turns: Sequence[Turn]) -> dict[str, Any]:
    seen = [turn.seen for turn in turns if turn.seen]
    latencies = [latency for each in seen for latency in each.latency_ms]
    pages = [latency for each in seen for latency in each.page_ms]
    lags = sorted((sum((each.lag_ms for each in seen), Counter())).elements())
    return {
        "requests": sum(each.requests for each in seen),
        "events_delivered": sum(each.events for each in seen),
        "errors": dict(sum((each.errors for each in seen), Counter())),
        "status_latency_ms": _percentiles(latencies),
        "page_requests": len(pages),
        "page_latency_ms": _percentiles(pages),
        "event_lag_ms": _percentiles(lags),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if len(values) < 2:
        return {}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 2), "p99": round(cuts[98], 2), "max": round(max(values), 2)}


def _memory(at_start: int, turns: Sequence[Turn]) -> dict[str, float]:
    measured = [turn.api_mib for turn in turns]
    watched = [turn.api_mib for turn in turns if turn.seen]
    return {
        "start": round(at_start / _MIB, 1),
        "first_watched": round(watched[0], 1) if watched else math.nan,
        "middle": round(measured[len(measured) // 2], 1) if measured else math.nan,
        "end": round(measured[-1], 1) if measured else math.nan,
        "most": round(max(measured, default=math.nan), 1),
    }


def _effect(turns: Sequence[Turn]) -> dict[str, Any]:
    """By how much the crowd slows the search: of each pair of turns the ratio, of those the geometric mean."""
    pairs = list(zip(turns[::2], turns[1::2], strict=False))
    ratios = []
    for pair in pairs:
        alone, watched = sorted(pair, key=lambda turn: turn.seen is not None)
        if alone.rate > 0 and watched.rate > 0:
            ratios.append(math.log(watched.rate / alone.rate))
    slower = {}
    if ratios:
        error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
        slower = {"percent": round(100 * (1 - math.exp(statistics.fmean(ratios))), 2)}
        slower |= {"standard_error": round(100 * error, 2) if len(ratios) > 1 else None, "pairs": len(ratios)}
    return {
        "trials_per_second": {
            name: round(statistics.fmean([turn.rate for turn in turns if bool(turn.seen) is watched] or [0.0]), 2)
            for name, watched in (("alone", False), ("watched", True))
        },
        "slower": slower,
    }


def _note(line: str) -> None:
    sys.stderr.write(line + "\n")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench service", description=__doc__)
    parser.add_argument("--watchers", type=int, default=500)
    parser.add_argument("--pages", type=int, help="how many of them are pages in browsers (default: all)")
    parser.add_argument("--rate", type=float, default=50.0, help="status requests a second (default: %(default)g)")
    parser.add_argument("--seconds", type=float, default=600.0, help="all turns together (default: %(default)g)")
    parser.add_argument("--turn", type=float, default=30.0, help="seconds of one turn (default: %(default)g)")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the transfers; 0 for none")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
