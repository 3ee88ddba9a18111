"""Which engines support which models of the zoo: ``./run bench coverage --json [--write]``.

Every row is determined by running an engine as a job would: import, untuned build, comparison with ONNX Runtime on
seeded inputs, then a few trials on the heaviest tuning tasks, a build with their records, and the comparison again.
Rows are kept in ``build/coverage.json``, each with the commit and the CPU, so an interrupted run continues.
``--write`` renews ``docs/reference/coverage.md`` and the table of all rows beside it, which keeps those that this
checkout has not measured. It shows what works, not how fast it becomes.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import engines, note, rows, show, zoo
from bench.rows import Row
from domain import errors
from domain.artifacts import Variant
from domain.jobs import Tuner
from domain.ports import Engine
from tuner.host import hardware
from tuner.host.session import EngineSession
from tuner.results import verification

_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs" / "reference" / "coverage.md"
_TABLE = _PAGE.with_suffix(".csv")
_ROWS = _ROOT / "build" / "coverage.json"
ROUTES = {"relay + autotvm": "autotvm", "relay + ansor": "ansor", "relax + metaschedule": "metaschedule"}
_USUAL_ROUTES = ("relay + autotvm", "relax + metaschedule")
_STEPS = ("imports", "verified", "tuned")
QUICK = ("ppocr-cls",)
"""Models for ``--quick``, of the package that the demo fetches too."""
_TRIAL_SECONDS = 120.0


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    found = [] if options.again else rows.read(options.rows)
    facts = {"commit": rows.commit(), "cpu": hardware.device(_threads()).key}
    with tempfile.TemporaryDirectory(prefix="tunesmith-coverage-") as scratch:
        for name in chosen(options):
            missing = [route for route in options.routes if find(found, name, route) is None]
            if not missing:
                continue
            model = _prepare(zoo.MODELS[name], home, Path(scratch) / name)
            for route in missing:
                found.append({"model": name, "route": route, **_attempt(model, route, options), **facts})
                note(_line(found[-1]))
                rows.save(options.rows, found)
    show({"trials": options.trials, "summary": summary(found), "rows": found})
    if options.write:
        kept = read_table(_TABLE.read_text())
        found += [row for row in kept if find(found, row["model"], row["route"]) is None]
        _PAGE.write_text(page(found))
        _TABLE.write_text(table(found))
    return 0


def chosen(options: argparse.Namespace) -> list[str]:
    """Return the names of the models to measure."""
    if options.models:
        return list(options.models)
    return list(QUICK) if options.quick else zoo.part(options.part)


def find(rows: Sequence[Row], model: str, route: str) -> Row | None:
    return next((row for row in rows if (row["model"], row["route"]) == (model, route)), None)


def summary(rows: Sequence[Row]) -> dict[str, int]:
    """Count the models, and those that at least one engine imports, verifies and tunes."""
    models = {row["model"] for row in rows}
    reached = {step: {row["model"] for row in rows if row[step]} for step in _STEPS}
    return {"models": len(models), **{step: len(found) for step, found in reached.items()}}


def _attempt(model: Prepared | str, route: str, options: argparse.Namespace) -> Row:
    if isinstance(model, str):
        return {**dict.fromkeys(_STEPS, False), "reason": model}
    started = time.monotonic()
    found = _find_out(model, ROUTES[route], trials=options.trials, tasks=options.tasks)
    return {**found, "seconds": round(time.monotonic() - started, 1)}


def _line(row: Row) -> str:
    steps = [step for step in _STEPS if row[step]]
    return f"{row['model']} {row['route']}: {', '.join(steps) or 'no'} {row.get('reason') or ''}"


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench coverage", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(zoo.MODELS), metavar="MODEL")
    parser.add_argument("--part", choices=zoo.PARTS, default="seen", help="without --models")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--routes", nargs="+", choices=list(ROUTES), default=list(_USUAL_ROUTES), metavar="ROUTE")
    parser.add_argument("--trials", type=int, default=4, help="for each tuning task that is tried")
    parser.add_argument("--tasks", type=int, default=2, help="how many of the heaviest to try")
    parser.add_argument("--rows", type=Path, default=_ROWS, help="the file that keeps finished rows")
    parser.add_argument("--again", action="store_true", help="forget the rows that are kept")
    parser.add_argument("--write", action="store_true", help="renew docs/reference/coverage.md and coverage.csv")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    home: Path
    folder: Path
    path: Path
    inputs: list[Path]
    expected: list[Path]


def _prepare(model: zoo.ZooModel, home: Path, folder: Path) -> Prepared | str:
    """Return the prepared model with the reference's outputs, or the reason why the reference cannot run it."""
    folder.mkdir(parents=True)
    try:
        prepared = engines.inspector(home).prepare(zoo.fetch(model, home), model.input_shapes, folder / "prepared.onnx")
        with engines.start("onnx", home, folder) as reference:
            inputs = verification.seed_inputs(reference, prepared.inputs, folder / "inputs", model=prepared.path).paths
            expected = verification.run_reference(
                reference, prepared.path, inputs, folder / "expected", threads=_threads()
            )
            verification.run_perturbed(reference, prepared.path, inputs, expected, threads=_threads())
    except errors.TunesmithError as error:
        return f"{error.code}: {error.message.splitlines()[0][:200]}"
    except (subprocess.SubprocessError, ValueError) as error:
        return f"not available: {_first_line(error)}"
    return Prepared(home=home, folder=folder, path=prepared.path, inputs=inputs, expected=expected)


def _find_out(model: Prepared, tuner: str, *, trials: int, tasks: int) -> Row:
    """Return how far the model gets, and what stopped it."""
    cell: Row = {**dict.fromkeys(_STEPS, False), "reason": None}
    try:
        with (
            engines.start(Tuner(tuner).engine, model.home, model.folder) as engine,
            engines.start("onnx", model.home, model.folder) as reference,
        ):
            attempt = _Attempt(model, engine, reference, tuner)
            try:
                attempt.check()
                cell["imports"] = True
                started = time.monotonic()
                cell["max_rel"] = attempt.verify(Variant.UNTUNED, None)
                cell |= {"verified": True, "verify_seconds": round(time.monotonic() - started, 1)}
                cell |= attempt.tune(trials, tasks)
                cell["tuned"] = cell["reason"] is None
            finally:
                cell["peak_mb"] = _peak_mb(engine)
    except errors.EngineRequestFailed as error:
        cell |= {"reason": f"{error.engine_code}: {_first_line(error)}", "details": error.details}
    except (errors.TunesmithError, _Wrong) as error:
        cell["reason"] = _first_line(error)
    return cell


def _peak_mb(engine: EngineSession) -> int | None:
    """Return the largest resident memory that the engine's process had; None if it has ended."""
    try:
        lines = Path(f"/proc/{engine.pid}/status").read_text().splitlines()
    except OSError:
        return None
    peak = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None)
    return int(peak) // 1024 if peak else None


class _Wrong(Exception):
    """The build computes a different result."""


class _Attempt:
    def __init__(self, model: Prepared, engine: Engine, reference: Engine, tuner: str) -> None:
        self._model, self._engine, self._reference = model, engine, reference
        self._folder = model.folder / tuner
        self._folder.mkdir()
        self._build = {
            "model": str(model.path), "target": f"llvm -mcpu={engine.hello['mcpu']}", "threads": _threads(),
            "precision": "f32", "tuner": tuner, "options": {},
        }  # fmt: skip

    def check(self) -> None:
        self._engine.request("check", {"model": str(self._model.path)}, timeout=engines.BUILD_SECONDS)

    def verify(self, variant: Variant, records: Path | None) -> float:
        """Build and compare; return the largest relative error over all outputs and inputs."""
        out = self._folder / variant
        build = {**self._build, "tuner": self._build["tuner"] if records else None, "format": "shared"}
        params = {**build, "records": str(records) if records else None, "out_dir": str(out)}
        self._engine.request("compile", params, timeout=engines.BUILD_SECONDS)
        found = verification.verify(
            self._reference, self._engine, variant=variant, bundle=out, inputs=self._model.inputs,
            expected=self._model.expected, folder=self._folder / "actual", place={"threads": _threads()},
            model=self._model.path,
        )  # fmt: skip
        worst = max(output.max_rel for output in found.outputs)
        if not found.passed:
            raise _Wrong(f"{variant} gives wrong results: relative error {worst:.2g}")
        return worst

    def tune(self, trials: int, count: int) -> dict[str, Any]:
        extracted = self._engine.request(
            "extract", {**self._build, "out_dir": str(self._folder / "tasks")}, timeout=engines.BUILD_SECONDS
        )["tasks"]
        open_tasks = [task for task in extracted if task["space_size"] > 1]
        if not open_tasks:
            return {"tasks": len(extracted), "reason": "nothing in it can be tuned"}
        measured: list[dict[str, Any]] = []
        for task in open_tasks[:count]:
            measured += self._round(task, trials)
        done = len(measured)
        lines = [trial["schedule"] for trial in measured if trial["error"] is None]
        if not lines:
            return {"tasks": len(extracted), "trials": done, "reason": why_none_worked(measured)}
        records = self._folder / "records.jsonl"
        records.write_text("".join(line.rstrip("\n") + "\n" for line in lines))
        return {"tasks": len(extracted), "trials": done, "max_rel_tuned": self.verify(Variant.TUNED, records)}

    def _round(self, task: dict[str, Any], trials: int) -> list[dict[str, Any]]:
        measured: list[dict[str, Any]] = []

        def on_event(kind: str, data: dict[str, Any]) -> None:
            if kind == "trial":
                measured.append(data)

        definition = task.get("definition")
        params = {
            **self._build,
            "workload_key": task["workload_key"],
            "task": str(self._folder / "tasks" / definition) if definition else None,
            "trials": trials, "first_trial": 0, "history": None, "seconds": None, "runner": {"kind": "local"},
            "measure": {"number": 1, "repeat": 1, "min_repeat_ms": 1, "timeout": 60.0},
            "spool": str(self._folder / f"spool-{task['position']}.jsonl"),
        }  # fmt: skip
        timeout = trials * _TRIAL_SECONDS + engines.BUILD_SECONDS
        self._engine.request("tune", params, timeout=timeout, on_event=on_event)
        return measured


def why_none_worked(trials: Sequence[dict[str, Any]]) -> str:
    """Summarize failed ``trial`` events: ``every trial failed: 6 invalid_schedule, 2 run_timeout; the first: …``."""
    if not trials:
        return "no trial was made"
    kinds = Counter(trial["error"] for trial in trials)
    counted = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    messages = (line for trial in trials for line in (trial["error_message"] or "").splitlines()[:1] if line)
    message = next(messages, None)
    return f"every trial failed: {counted}" + (f"; the first: {message[:300]}" if message else "")


def _threads() -> int:
    return len(os.sched_getaffinity(0))


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:300] if lines else type(error).__name__


_PAGE_HEAD = """# Supported models

Written by `./run bench coverage --write`, which runs the engines. [coverage.csv](coverage.csv) has a
row for every model and route, with its family, seconds, peak memory, commit and CPU.

* **imports**: the engine imports the model.
* **verified**: the untuned build matches ONNX Runtime on three seeded inputs.
* **tuned**: trials of the heaviest tuning tasks succeeded, and a build with their records is correct.

The table says nothing about speed.

"""
_COLUMNS = (
    *("model", "family", "part", "route", *_STEPS, "seconds", "verify_seconds", "peak_mb", "tasks", "max_rel"),
    *("reason", "commit", "cpu"),
)
_LONGEST_REASON = 120


def page(rows: Sequence[Row]) -> str:
    """Return the page: how many models get how far, on any route and on each, and why some fail."""
    reached = summary(rows)
    unseen = summary([row for row in rows if zoo.MODELS[row["model"]].unseen])
    total = (
        f"Of {len(zoo.MODELS)} models, {reached['models']} were measured and {reached['verified']} are verified on "
        f"some engine; of these, {unseen['models']} and {unseen['verified']} are unseen while engines are improved.\n\n"
    )
    routes = [route for route in ROUTES if any(row["route"] == route for row in rows)]
    lines = [f"| models | {' | '.join(routes)} |", f"|---|{'---|' * len(routes)}"]
    for step in ("measured", *_STEPS):
        counts = [sum(row["route"] == route and bool(row.get(step, True)) for row in rows) for route in routes]
        lines.append(f"| {step} | {' | '.join(map(str, counts))} |")
    failed: dict[tuple[str, str], list[str]] = {}
    for row in _in_order(rows):
        if not row["tuned"]:
            failed.setdefault((row["model"], row["reason"]), []).append(row["route"])
    reasons = [f"* {model}, {', '.join(found)}: {_plain(why)}" for (model, why), found in failed.items()]
    tail = ["", "## Reasons for failures", "", *reasons] if reasons else []
    return _PAGE_HEAD + total + "\n".join([*lines, *tail]) + "\n"


def _plain(reason: str) -> str:
    cut = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}…"
    return cut.replace("|", "\\|").replace("<", "&lt;")


def _in_order(rows: Sequence[Row]) -> list[Row]:
    order = {name: position for position, name in enumerate(zoo.MODELS)}
    return sorted(rows, key=lambda row: (order[row["model"]], list(ROUTES).index(row["route"])))


def table(rows: Sequence[Row]) -> str:
    """Return all rows as CSV, in the zoo's order."""
    written = io.StringIO()
    writer = csv.DictWriter(written, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in _in_order(rows):
        writer.writerow({**row, **_described(row["model"])})
    return written.getvalue()


def read_table(text: str) -> list[Row]:
    """Return the rows of a table."""
    read: list[Row] = [
        {name: value or None for name, value in row.items()} for row in csv.DictReader(io.StringIO(text))
    ]
    return [{**row, **{step: row[step] == "True" for step in _STEPS}} for row in read]


def _described(name: str) -> Mapping[str, str]:
    model = zoo.MODELS[name]
    return {"family": model.family, "part": "unseen" if model.unseen else "seen"}
