"""Whether libraries of models compute, bit for bit, what TVM's executors do: ``./run bench equality --json``.

Each engine builds each model untuned. C, Python and TVM's executor then run the same object files on the same inputs,
each in a process of its own, with one thread and with two. Rows are kept in ``build/equality.json``, so an interrupted
run continues. A row has a ``reason`` if nothing was compared, or a process crashed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import engines, note, rows, runtime, show, zoo
from bench.rows import Row
from domain import errors
from tuner.engines.runtime import libraries
from tuner.host.inspection import Prepared
from tuner.results import verification

_ENGINES = ("relay", "relax")
_THREADS = (1, 2)
_ROWS = Path(__file__).parents[1] / "build" / "equality.json"


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    finished = rows.read(options.rows)
    with tempfile.TemporaryDirectory(prefix="tunesmith-equality-") as scratch:
        harness = runtime.harness(Path(scratch))
        for name in options.models:
            known = {row["engine"] for row in finished if row["model"] == name}
            missing = [engine for engine in options.engines if engine not in known]
            if not missing:
                continue
            folder = Path(scratch) / name
            for row in _compared(zoo.MODELS[name], missing, folder, harness, home):
                note(json.dumps(row))
                finished.append(row)
            rows.save(options.rows, finished)
            shutil.rmtree(folder, ignore_errors=True)
    show({"summary": summary(finished), "rows": finished})
    return 0


def summary(rows: Sequence[Row]) -> Mapping[str, Any]:
    """Count the builds of each engine, those with a library, and those whose outputs are equal."""
    found: dict[str, Any] = {}
    for engine in sorted({row["engine"] for row in rows}):
        built = [row for row in rows if row["engine"] == engine and row["built"]]
        compared = [row for row in built if row["equal"] is not None]
        unequal = [row["model"] for row in compared if not all(row["equal"].values())]
        found[engine] = {
            "built": len(built),
            "libraries": len(compared),
            "equal": len(compared) - len(unequal),
            "unequal": unequal,
            "most_memory_beyond_bytes": max((row["memory_beyond_bytes"] for row in compared), default=None),
        }
    return found


def _compared(model: zoo.ZooModel, names: Sequence[str], folder: Path, harness: Path, home: Path) -> list[Row]:
    folder.mkdir()
    note(f"{model.name}: preparing")
    path = zoo.fetch(model, home)
    try:
        prepared = engines.inspector(home).prepare(path, model.input_shapes, folder / "prepared.onnx")
        with engines.start("onnx", home, folder) as reference:
            made = verification.seed_inputs(
                reference, prepared.inputs, folder / "inputs", model=prepared.path, seeds=[0]
            )
    except errors.TunesmithError as error:
        return [{"model": model.name, "engine": name, **_nothing(error.message)} for name in names]
    return [
        {"model": model.name, "engine": name, **_row(name, prepared, made.paths[0], folder / name, harness, home)}
        for name in names
    ]


def _nothing(reason: str | None) -> Row:
    return {"built": False, "equal": None, "reason": reason.splitlines()[0] if reason else None}


def _row(engine: str, prepared: Prepared, inputs: Path, bundle: Path, harness: Path, home: Path) -> Row:
    row = _nothing(None)
    started = time.monotonic()
    note(f"{bundle.parent.name}: building with {engine}")
    try:
        with engines.start(engine, home, bundle.parent) as session:
            engines.build_untuned(session, prepared.path, bundle, threads=max(_THREADS))
    except errors.EngineError as error:
        return _nothing(error.message)
    row |= {"built": True, "build_seconds": round(time.monotonic() - started, 1)}
    if (bundle / libraries.NEEDS_TVM).exists():
        return {**row, "reason": (bundle / libraries.NEEDS_TVM).read_text().strip()}
    row |= {"equal": {}, "memory_beyond_bytes": 0}
    for threads in _THREADS:
        try:
            with runtime.arms_of(engine, bundle, inputs, harness, home, threads, ("python", "tvm")) as arms:
                row["equal"][str(threads)] = all(runtime.equal_to_tvm(arms, bundle).values())
                row["memory_beyond_bytes"] = max(row["memory_beyond_bytes"], runtime.memory_beyond(arms["c"]))
        except RuntimeError as error:
            row["equal"][str(threads)] = False
            row["reason"] = str(error)
    return row


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench equality", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(zoo.MODELS), default=list(zoo.MODELS), metavar="MODEL")
    parser.add_argument("--engines", nargs="+", choices=_ENGINES, default=_ENGINES, metavar="ENGINE")
    parser.add_argument("--rows", type=Path, default=_ROWS, help="the file that keeps finished rows")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
