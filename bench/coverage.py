"""Which engine imports, verifies and tunes which real model: ``./run bench coverage [--write]``.

Every cell is found out by asking the engine, as a job would: import, untuned build, comparison with ONNX Runtime on
seeded inputs, then a few trials on the heaviest tuning tasks, a build with their records, and the comparison again.
Prints JSON; ``--write`` makes ``docs/coverage.md`` of it. It says what works, not how fast it becomes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import coverage_cell, coverage_page, zoo
from bench.coverage_cell import ROUTES, Model

_PAGE = Path(__file__).parents[1] / "docs" / "coverage.md"


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    rows = _known(options.resume)
    with tempfile.TemporaryDirectory(prefix="tunesmith-coverage-") as scratch:
        for name in options.models:
            missing = [route for route in options.routes if not _row(rows, name, route)]
            if not missing:
                continue
            model = coverage_cell.prepare(zoo.MODELS[name], home, Path(scratch) / name)
            for route in missing:
                rows.append({"model": name, "route": route, **_cell(model, route, options)})
                _note(rows[-1])
                _save(options.resume, rows)
    report = {"trials": options.trials, "cells": rows}
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")
    if options.write:
        _PAGE.write_text(coverage_page.text(rows))
    return 0


def _cell(model: Model | str, route: str, options: argparse.Namespace) -> dict[str, Any]:
    if isinstance(model, str):
        return {"imports": False, "verified": False, "tuned": False, "reason": model}
    started = time.monotonic()
    cell = coverage_cell.find_out(model, ROUTES[route], trials=options.trials, tasks=options.tasks)
    return {**cell, "seconds": round(time.monotonic() - started, 1)}


def _row(rows: Sequence[dict[str, Any]], model: str, route: str) -> dict[str, Any] | None:
    return next((row for row in rows if (row["model"], row["route"]) == (model, route)), None)


def _known(path: Path | None) -> list[dict[str, Any]]:
    known: list[dict[str, Any]] = json.loads(path.read_text()) if path and path.exists() else []
    return known


def _save(path: Path | None, rows: Sequence[dict[str, Any]]) -> None:
    if path:
        path.write_text(json.dumps(rows, indent=1))


def _note(row: dict[str, Any]) -> None:
    words = [word for word in ("imports", "verified", "tuned") if row[word]]
    sys.stderr.write(f"{row['model']} {row['route']}: {', '.join(words) or 'no'} {row.get('reason') or ''}\n")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench coverage", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(zoo.MODELS), default=list(zoo.MODELS), metavar="MODEL")
    parser.add_argument("--routes", nargs="+", choices=list(ROUTES), default=list(ROUTES), metavar="ROUTE")
    parser.add_argument("--trials", type=int, default=4, help="for each tuning task that is tried")
    parser.add_argument("--tasks", type=int, default=2, help="how many of the heaviest to try")
    parser.add_argument("--resume", type=Path, help="a file that keeps finished cells")
    parser.add_argument("--write", action="store_true", help="renew docs/coverage.md")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
