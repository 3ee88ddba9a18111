"""How fast trials are: stock TVM and the engine, task by task in turn, on the same tasks, and what each found.

Prints JSON. Each side's seconds are those of whole searches, its start-up included; its processor time includes all of
its processes. The best schedules of both sides are built once more by one program and timed there, in turn.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import trials_sides, zoo
from bench.trials_sides import Json, Ours, Stock
from tuner import catalogue, environments, hostinfo
from tuner.inspection import Inspector

ENGINES = {"autotvm": "relay", "ansor": "relay", "metaschedule": "relax"}
_OPTIONS: Json = {"keep_layout": False, "rewrite": False}
"""The search space of stock TVM: any layout (AutoTVM's choice alone), and TVM's own templates."""
_TIMED = 30
"""Times that each side's best is timed."""


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-trials-") as scratch:
        setting = _setting(options, home, Path(scratch))
        tasks = trials_sides.extract(setting, options.tasks, options.trials)
        stock, ours = Stock(setting), Ours(setting)
        with stock, ours:
            for number, task in enumerate(tasks):
                for side in (stock, ours) if number % 2 == 0 else (ours, stock):
                    _tell(f"{task['description']}: {side.name}")
                    side.tune(task, options.trials)
        latencies = trials_sides.compare(setting, tasks, stock, ours, _TIMED)
    report = {
        "device": hostinfo.device(setting.threads).key,
        "target": setting.target,
        "threads": setting.threads,
        "load_before": before,
        "tuner": setting.tuner,
        "model": options.model,
        "trials": options.trials * len(tasks),
        "trials_per_task": options.trials,
        "options": setting.options,
        "stock": stock.report,
        "ours": ours.report,
        "ratio_trials_per_s": ours.report["trials_per_s"] / stock.report["trials_per_s"],
        "ratio_cpu_s": ours.report["cpu_s"] / stock.report["cpu_s"],
        "ratio_best_latency": _geometric_mean([ours_s / stock_s for stock_s, ours_s in latencies]),
        "breakdown": ours.breakdown,
        "tasks": [
            {**_named(task), "stock_ms": stock_s * 1e3, "ours_ms": ours_s * 1e3}
            for task, (stock_s, ours_s) in zip(tasks, latencies, strict=True)
        ],
    }
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0


def _setting(options: argparse.Namespace, home: Path, folder: Path) -> trials_sides.Setting:
    model = zoo.MODELS[options.model]
    reference, engine = (catalogue.get(name) for name in ("reference", ENGINES[options.tuner]))
    inspector = Inspector(spec=reference, python=environments.interpreter(reference, home), home=home)
    prepared = inspector.prepare(zoo.fetch(model, home), model.input_shapes, folder / "model.onnx")
    return trials_sides.Setting(
        tuner=options.tuner,
        engine=engine,
        python=environments.interpreter(engine, home),
        home=home,
        folder=folder,
        model=prepared.path,
        mcpu=options.mcpu,
        threads=options.threads,
        options=_OPTIONS,
    )


def _named(task: Json) -> dict[str, Any]:
    return {name: task[name] for name in ("name", "description", "weight", "space_size")}


def _geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _tell(message: str) -> None:
    sys.stderr.write(f"· {message}\n")
    sys.stderr.flush()


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench trials", description=__doc__)
    parser.add_argument("--tuner", choices=sorted(ENGINES), default="autotvm")
    parser.add_argument("--model", choices=sorted(zoo.MODELS), default="squeezenet")
    parser.add_argument("--trials", type=int, default=64, help="of each task (default: 64)")
    parser.add_argument("--tasks", type=int, default=3, help="the heaviest (default: 3)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--mcpu", help="default: this machine's")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
