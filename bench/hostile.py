"""Robustness against malicious files: ``./run bench hostile --inputs 1000 --json``.

Uploads every file of ``tests/support/hostile/corpus.py`` and any number of mutated models
(``tests/support/hostile/mutations.py``) to a service with its own home folder, which reads each in a separate process
as always. Some of the accepted models get a job with one trial. Further mutated models are read and run by one engine
under the same limits, which is about fifty times faster. Everything must end in a typed answer, and the service must be
unaffected.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench import hosting, note, show
from tests.support.hostile import corpus, mutations
from tests.support.hostile.reader import Reader
from tuner.host import catalogue, environments
from tunesmith import connection

_UPLOADERS = 2
_TYPED = (422, 400, 413)
_JOB_SECONDS = 600.0
_DYNAMIC = 8
"""Size used for dynamic dimensions."""
_READING = 1_000_000_000
"""First seed for direct readings, so that no file is tried twice."""


@dataclass
class Outcomes:
    """Counts of outcomes; ``untyped`` should stay empty."""

    counted: Counter[str] = field(default_factory=Counter)
    untyped: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0

    def add(self, outcome: str, seconds: float, *, name: str, typed: bool) -> None:
        self.counted[outcome] += 1
        self.slowest_seconds = max(self.slowest_seconds, seconds)
        if not typed:
            note(f"{name}: {outcome}")
            self.untyped.append(f"{name}: {outcome}")

    def as_json(self) -> dict[str, Any]:
        return {
            "tried": self.counted.total(),
            "outcomes": dict(self.counted.most_common()),
            "untyped": self.untyped[:20],
            "slowest_seconds": round(self.slowest_seconds, 1),
        }


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    report: dict[str, Any] = {"inputs": options.inputs, "first_seed": options.seed}
    with tempfile.TemporaryDirectory(prefix="tunesmith-hostile-") as scratch:
        report["readings"] = _read(home, Path(scratch), options.seed + _READING, options.readings).as_json()
    for spec in catalogue.ENGINES.values():
        os.environ[environments.variable(spec)] = str(environments.interpreter(spec, home))
    with tempfile.TemporaryDirectory(prefix="tunesmith-hostile-") as scratch:
        os.environ["TUNESMITH_HOME"] = scratch
        with hosting.running(Path(scratch), say=note):
            report.update(_service(Path(scratch), options))
    show(report)
    return 1 if any(report[part]["untyped"] for part in ("readings", "uploads", "jobs")) else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench hostile")
    parser.add_argument("--inputs", type=int, default=200, help="spoiled models to upload, beside the corpus")
    parser.add_argument("--jobs", type=int, default=10, help="of those that are taken, at most so many get a job")
    parser.add_argument("--readings", type=int, default=5000, help="spoiled models that one engine reads and runs")
    parser.add_argument("--seed", type=int, default=0, help="of the first spoiled model; the next have the next ones")
    parser.add_argument("--json", action="store_true", help="print JSON, which is what there is")
    return parser.parse_args(arguments)


def _read(home: Path, folder: Path, first: int, count: int) -> Outcomes:
    python = environments.interpreter(catalogue.get("onnx"), home)
    reader, found = Reader(python, folder), Outcomes()
    for number in range(count):
        began = time.monotonic()
        content = mutations.mutated(first + number)
        try:
            reason = reader.inspect(content)
            outcome = f"refused: {reason}" if reason else f"ran: {reader.prepare(content) or 'well'}"
            typed = True
        except Exception as error:  # noqa: BLE001 - it is what we look for
            outcome, typed = f"{type(error).__name__}: {str(error)[:200]}", False
        found.add(outcome, time.monotonic() - began, name=f"seed {first + number}", typed=typed)
        if (number + 1) % 1000 == 0:
            note(f"read {number + 1} of {count}")
    reader.close()
    return found


def _service(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    found = connection.find(None, None)
    headers = {"Authorization": f"Bearer {found.token}"}
    with httpx.Client(base_url=found.url, headers=headers, timeout=900.0) as client:
        _upload_harmless(client)
        before = _memory(home)
        uploads, taken = _upload_all(client, options)
        after = _memory(home)
        jobs = _run_jobs(client, taken, options.jobs)
        alive = client.get("/readyz").status_code == 200
        _upload_harmless(client)
    return {
        "uploads": uploads.as_json(),
        "jobs": jobs.as_json(),
        "service": {
            "ready_at_the_end": alive,
            "mb_before": before,
            "mb_after_the_uploads": after,
            "mb_at_the_end": _memory(home),
            "engine_processes_left": _engines(home),
        },
    }


def _upload_harmless(client: httpx.Client) -> None:
    """Upload a valid model; raises unless the service accepts it."""
    client.put("/v1/models", params={"name": "good"}, content=mutations.models.small_network()).raise_for_status()


def _files(options: argparse.Namespace) -> Iterator[tuple[str, bytes]]:
    yield from ((hostile.name, hostile.content) for hostile in corpus.corpus())
    yield from (
        (f"seed {seed}", mutations.mutated(seed)) for seed in range(options.seed, options.seed + options.inputs)
    )


def _upload_all(client: httpx.Client, options: argparse.Namespace) -> tuple[Outcomes, list[dict[str, Any]]]:
    found, taken = Outcomes(), []
    with ThreadPoolExecutor(_UPLOADERS) as threads:
        answers = threads.map(lambda file: _upload(client, *file), _files(options))
        for number, (name, status, body, seconds) in enumerate(answers, 1):
            if status in (200, 201):
                taken.append(body)
                found.add("taken", seconds, name=name, typed=True)
            else:
                reason = (body.get("details") or {}).get("reason")
                outcome = f"{status} {body.get('code')}" + (f": {reason}" if reason else "")
                found.add(outcome, seconds, name=name, typed=status in _TYPED)
            if number % 100 == 0:
                note(f"uploaded {number}")
    return found, taken


def _upload(client: httpx.Client, name: str, content: bytes) -> tuple[str, int, dict[str, Any], float]:
    began = time.monotonic()
    answer = client.put("/v1/models", params={"name": name[:100]}, content=content)
    return name, answer.status_code, answer.json(), time.monotonic() - began


def _run_jobs(client: httpx.Client, taken: list[dict[str, Any]], most: int) -> Outcomes:
    """Run jobs for models spread over all accepted ones, so that both corpus and mutations are covered."""
    found = Outcomes()
    step = max(1, len(taken) // most) if most else 1
    for number, model in enumerate(taken[::step][:most], 1):
        began = time.monotonic()
        request = {"model": model["id"], "tuner": "autotvm", "budget": {"trials": 1, "seconds": 5}}
        shapes = {each["name"]: [_size(size) for size in each["shape"]] for each in model["inputs"]}
        answer = client.post("/v1/jobs", json={**request, "input_shapes": shapes})
        if answer.status_code != 202:
            outcome, typed = f"{answer.status_code} {answer.json().get('code')}", answer.status_code in _TYPED
        else:
            outcome, typed = _end(client, answer.json()["id"])
        found.add(outcome, time.monotonic() - began, name=model["name"], typed=typed)
        if number % 10 == 0:
            note(f"jobs {number}")
    return found


def _end(client: httpx.Client, job: str) -> tuple[str, bool]:
    deadline = time.monotonic() + _JOB_SECONDS
    while time.monotonic() < deadline:
        job_now = client.get(f"/v1/jobs/{job}").json()
        if job_now["state"] not in ("queued", "running", "canceling"):
            code = (job_now.get("failure") or {}).get("code")
            return job_now["state"] + (f": {code}" if code else ""), code != "internal_error"
        time.sleep(0.5)
    return "not done within its limits", False


def _size(size: Any) -> int:
    return size if isinstance(size, int) and size > 0 else _DYNAMIC


def _memory(home: Path) -> dict[str, int]:
    """Return the resident MiB of the service's processes, by kind."""
    found: Counter[str] = Counter()
    for process in _processes(home):
        words = process.cmdline()
        kind = next((word for word in words if word in ("api", "worker", "serve")), None)
        if kind:
            found[kind] += process.memory_info().rss // 2**20
    return dict(found)


def _engines(home: Path) -> int:
    return sum(any("tuner.engines" in word for word in process.cmdline()) for process in _processes(home))


def _processes(home: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.environ().get("TUNESMITH_HOME") == str(home) and process.pid != os.getpid():
                process.cmdline()
                yield process
        except psutil.Error:
            continue
