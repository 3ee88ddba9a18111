"""``./run faults``: do each fault to the production topology while a job tunes, and say what came of it."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence

from tests.support.servers.processes import Missing
from tests.support.topology.engines import Engines
from tests.system.faults import report, running
from tests.system.faults.report import Row
from tests.system.faults.running import FAULTS
from tests.system.faults.trying import Fault, NotHere, attempt


def main() -> int:
    options = _options()
    # Whoever ends this leaves nothing behind either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = [FAULTS[name] for name in options.only or FAULTS]
    rows: list[Row] = []
    started = time.monotonic()
    try:
        for kind in Engines:
            faults = [fault for fault in chosen if fault.engines is kind]
            if faults:
                rows += _run(kind, faults, options)
    except Missing as missing:
        _say(str(missing))
        return 3
    rows.sort(key=lambda row: list(FAULTS).index(row.fault.name))
    seconds = time.monotonic() - started
    if options.json:
        sys.stdout.write(json.dumps(report.as_json(rows, seconds), indent=2) + "\n")
    else:
        sys.stdout.write(report.as_table(rows, seconds))
    return 0 if all(row.good for row in rows) else 1


def _run(kind: Engines, faults: Sequence[Fault], options: argparse.Namespace) -> list[Row]:
    rows = []
    _say(f"· starting PostgreSQL, the broker, S3, the API and {len(running.WORKERS)} workers ({kind} engines)")
    keep = report.folder(str(options.keep / kind)) if options.keep else None
    with running.topology(kind, keep=keep) as topology:
        for fault in faults:
            row = Row(fault=fault)
            rows.append(row)
            for number in range(options.tries):
                _say(f"· {fault.title} ({number + 1} of {options.tries})")
                try:
                    row.tries.append(attempt(fault, topology, number))
                except NotHere as lacking:
                    row.skipped = str(lacking)
                    break
                except AssertionError as error:
                    row.broken.append(str(error))
                    _say(f"  {error}")
                else:
                    _say(f"  {row.tries[-1]}")
    return rows


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run faults", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(FAULTS), metavar="NAME", help=", ".join(FAULTS))
    parser.add_argument("--tries", type=int, default=1, help="of each fault (default: 1)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=report.folder, help="a folder for homes and logs that stays")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
