"""Models with gigabytes of weights: ``./run bench large --megabytes 500 2000 --json``.

A stack of dense layers with seeded weights, which lie in a file of their own, is uploaded as one archive to a service
with its own home folder; a job tunes it, and the bundle is run with ``tunesmith.runtime``. Of every kind of process the
largest resident memory is reported, with and without pages of files, which the system can drop.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from bench import hosting, note, show
from tuner.host import catalogue, environments
from tunesmith.client import Client

_ROOT = Path(__file__).parents[1]
_MIB = 2**20
_LOOK_SECONDS = 0.1
_JOB_SECONDS = 3600.0
_RUN_SECONDS = 600.0
_RUN = """
import json, sys, time
import numpy as np
from tunesmith.runtime import InferenceSession
started = time.perf_counter()
session = InferenceSession(sys.argv[1], runtime="library")
opened = time.perf_counter() - started
[given] = session.get_inputs()
outputs = session.run(None, {given.name: np.random.default_rng(0).random(given.shape, dtype=np.float32)})
varies = all(np.isfinite(each).all() and each.std() > 0 for each in outputs)
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"open_seconds": round(opened, 2), "varies": bool(varies), "peak_mb": int(peak) // 1024}))
"""


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    for spec in catalogue.ENGINES.values():
        os.environ[environments.variable(spec)] = str(environments.interpreter(spec, home))
    rows: list[dict[str, Any]] = []
    for megabytes in options.megabytes:
        with tempfile.TemporaryDirectory(prefix="tunesmith-large-") as scratch:
            os.environ["TUNESMITH_HOME"] = scratch
            rows.append(_measure(Path(scratch), megabytes, options))
            note(json.dumps(rows[-1]))
    show({"machine_mb": psutil.virtual_memory().total // _MIB, "trials": options.trials, "rows": rows})
    return 0 if all(row["state"] == "succeeded" and row["run"]["varies"] for row in rows) else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench large", description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[500, 2000], help="bytes of weights, in 10⁶")
    parser.add_argument("--tuner", default="auto")
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)


def _measure(home: Path, megabytes: int, options: argparse.Namespace) -> dict[str, Any]:
    archive = home / "model.tar"
    python = environments.interpreter(catalogue.get("onnx"), home)
    subprocess.run([python, "-m", "bench.large_model", str(megabytes * 10**6), archive], cwd=_ROOT, check=True)
    found: dict[str, Any] = {"archive_mb": round(archive.stat().st_size / 10**6)}
    with hosting.running(home, say=note), _watching(home) as peaks, Client() as client:
        started = time.monotonic()
        model = client.upload(archive, name=f"dense-{megabytes}")
        found["upload_seconds"] = round(time.monotonic() - started, 1)
        archive.unlink()
        started = time.monotonic()
        job = client.tune(model, tuner=options.tuner, trials=options.trials, total_seconds=_JOB_SECONDS).wait()
        found |= {"state": job.state, "failure": job.failure, "job_seconds": round(time.monotonic() - started, 1)}
        if job.state == "succeeded":
            bundle = job.artifact.download(home / "bundle.tar")
            found |= {"bundle_mb": bundle.stat().st_size // _MIB, "run": _run(python, bundle)}
    return {**found, "peak_mb": peaks}


def _run(python: Path, bundle: Path) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-c", _RUN, bundle], cwd=_ROOT, check=True, capture_output=True, timeout=_RUN_SECONDS
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextlib.contextmanager
def _watching(home: Path) -> Iterator[dict[str, dict[str, int]]]:
    """Note the peaks of all processes of the service while the context is open."""
    peaks: dict[str, dict[str, int]] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            for kind, memory in _processes(home):
                of_kind = peaks.setdefault(kind, dict.fromkeys(memory, 0))
                of_kind.update({name: max(of_kind[name], value) for name, value in memory.items()})

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()


def _processes(home: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield what each process of the service is, and its memory in MiB."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(json.loads((home / "server.json").read_text())["pid"]).children():
            part = _program(child)
            yield from _of(child, part)
            for engine in child.children(recursive=True):
                yield from _of(engine, f"{part}: {_program(engine)}")


def _of(process: psutil.Process, kind: str) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield nothing for a process that has ended."""
    with contextlib.suppress(OSError):
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        if "VmHWM" in lines:
            kilobytes = {"resident": lines["VmHWM"], "anonymous": lines["RssAnon"]}
            yield kind, {name: int(value.split()[0]) // 1024 for name, value in kilobytes.items()}


def _program(process: psutil.Process) -> str:
    """Return the module of a Python process, or the name of the program."""
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        return words[words.index("-m") + 1].removeprefix("tuner.engines.") if "-m" in words else process.name()
    return "ended"
