"""``python -m tests.support.topology``: the production topology on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from tests.support.servers.processes import Missing
from tests.support.topology import running
from tests.support.topology.engines import Engines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.topology", description=__doc__)
    parser.add_argument("--engines", choices=list(Engines), type=Engines, default=Engines.REAL)
    parser.add_argument("--hosts", type=int, default=2, help="each with one worker (default: 2)")
    parser.add_argument("--keep", type=Path, help="a folder for homes and logs that stays")
    options = parser.parse_args()
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    workers = {f"worker-{number}": f"host-{number}" for number in range(1, options.hosts + 1)}
    try:
        with running.running(kind=options.engines, workers=workers, keep=options.keep) as topology:
            _say(f"ready; homes and logs are in {topology.folder}. In another terminal:")
            _say(f"  export TUNESMITH_URL=http://127.0.0.1:{topology.port} TUNESMITH_TOKEN={topology.token}")
            _say("  ./run cli workers")
            names = ("DATABASE", "BROKER", "BLOB")
            for name in (f"TUNESMITH_{each}_URL" for each in names):
                _say(f"  {name}={topology.api.environment[name]}")
            while not stop.wait(0.2):
                topology.tend()
    except Missing as missing:
        _say(str(missing))
        return 3
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
