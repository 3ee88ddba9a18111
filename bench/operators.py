"""Which operators of ONNX the engines support: ``./run bench operators --json``.

The cases are the onnx package's own tests of single operators. Each is prepared as a job prepares a model, built
untuned by both engines, run on the test's inputs, and compared with ONNX Runtime. Rows are kept in
``build/operators.json``, so an interrupted run continues.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from bench import engines, note, rows, show
from bench.rows import Row
from domain import errors
from tuner.host import catalogue, environments
from tuner.host.session import EngineSession

_ROWS = Path(__file__).parents[1] / "build" / "operators.json"
_SECONDS = 60.0
EQUAL, WRONG = "equal", "wrong"
ENGINES = ("relay", "relax")


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    found = [] if options.again else rows.read(options.rows)
    known = {(row["case"], row["engine"]) for row in found}
    with tempfile.TemporaryDirectory(prefix="tunesmith-operators-") as scratch:
        cases = _cases(home, Path(scratch) / "cases", options.cases)
        sessions = _Sessions(home, Path(scratch))
        for case in cases:
            missing = [name for name in options.engines if (case["name"], name) not in known]
            if not missing or (options.operators and case["operator"] not in options.operators):
                continue
            for row in _attempt(Path(scratch) / "cases" / case["name"], missing, sessions):
                found.append({"operator": case["operator"], "case": case["name"], "opset": case["opset"], **row})
                note(f"{case['operator']} {case['name']} {row['engine']}: {row['outcome']} {row['reason'] or ''}")
            rows.save(options.rows, found)
        sessions.close()
    show({"summary": summary(found), "operators": by_operator(found)})
    return 0


def summary(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Count operators by engine: those with equal outputs in all cases, in some, and in none."""
    counted: dict[str, dict[str, int]] = {}
    for name in ENGINES:
        found: dict[str, set[bool]] = defaultdict(set)
        for row in rows:
            if row["engine"] == name:
                found[row["operator"]].add(row["outcome"] == EQUAL)
        counted[name] = {
            "all": sum(each == {True} for each in found.values()),
            "some": sum(each == {True, False} for each in found.values()),
            "none": sum(each == {False} for each in found.values()),
        }
    return counted


def by_operator(rows: Sequence[Row]) -> list[Row]:
    """Return ``{operator, engine, cases, failures {outcome: [case, …]}}`` of operators with failures."""
    grouped: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["operator"], row["engine"]].append(row)
    table = []
    for (operator, name), group in sorted(grouped.items()):
        failures: dict[str, list[str]] = defaultdict(list)
        for row in group:
            if row["outcome"] != EQUAL:
                failures[row["outcome"]].append(row["case"])
        if failures:
            table.append({"operator": operator, "engine": name, "cases": len(group), "failures": dict(failures)})
    return table


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench operators", description=__doc__)
    parser.add_argument("--operators", nargs="+", metavar="OPERATOR")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--cases", type=int, default=4, help="at most so many of each operator")
    parser.add_argument("--rows", type=Path, default=_ROWS, help="the file that keeps finished rows")
    parser.add_argument("--again", action="store_true", help="forget the rows that are kept")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)


def _cases(home: Path, folder: Path, count: int) -> list[Row]:
    python = environments.interpreter(catalogue.get("onnx"), home)
    command = [str(python), "-m", "bench.operator_cases", str(folder), str(count)]
    written: list[Row] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return written


class _Sessions:
    """Engines, started on first use and again after one has crashed."""

    def __init__(self, home: Path, folder: Path) -> None:
        self._home, self._folder = home, folder
        self._running: dict[str, EngineSession] = {}

    def get(self, name: str) -> EngineSession:
        if name not in self._running:
            self._running[name] = engines.start(name, self._home, self._folder)
        return self._running[name]

    def request(self, name: str, method: str, params: Row) -> Row:
        try:
            return self.get(name).request(method, params, timeout=_SECONDS)
        except errors.EngineRequestFailed:
            raise
        except errors.EngineError:
            self._running.pop(name).close()
            raise

    def close(self) -> None:
        for session in self._running.values():
            session.close()


def _attempt(folder: Path, names: Sequence[str], sessions: _Sessions) -> list[Row]:
    prepared, expected = folder / "prepared.onnx", folder / "expected.npz"
    model, inputs = str(folder / "model.onnx"), str(folder / "inputs.npz")
    try:
        sessions.request("onnx", "prepare", {"path": model, "input_shapes": {}, "out_path": str(prepared)})
        run = {"path": model, "inputs": inputs, "outputs": str(expected), "threads": 1}
        sessions.request("onnx", "run", run)
    except errors.EngineError as error:
        return [{"engine": name, **_failed(error, "onnx")} for name in names]
    return [{"engine": name, **_build(name, folder, prepared, sessions)} for name in names]


def _build(name: str, folder: Path, prepared: Path, sessions: _Sessions) -> Row:
    out, actual = folder / name, folder / f"{name}.npz"
    target = f"llvm -mcpu={sessions.get(name).hello['mcpu']}"
    params = {
        "model": str(prepared), "target": target, "threads": 1, "precision": "f32", "tuner": None, "options": {},
        "format": "shared", "records": None, "out_dir": str(out),
    }  # fmt: skip
    try:
        sessions.request(name, "compile", params)
        run = {"bundle": str(out), "inputs": str(folder / "inputs.npz"), "outputs": str(actual), "threads": 1}
        sessions.request(name, "run", run)
        compared = sessions.request(
            "onnx", "compare", {"expected": str(folder / "expected.npz"), "actual": str(actual)}
        )["outputs"]
    except errors.EngineError as error:
        return _failed(error, name)
    wrong = [f"{each['output']}: relative error {each['max_rel']}" for each in compared if not each["passed"]]
    return {"outcome": WRONG if wrong else EQUAL, "reason": "; ".join(wrong) or None}


def _failed(error: errors.EngineError, engine: str) -> Row:
    code = error.engine_code if isinstance(error, errors.EngineRequestFailed) else error.code
    lines = error.message.splitlines() or [""]
    return {"outcome": f"{engine}: {code}", "reason": lines[0][:300]}
