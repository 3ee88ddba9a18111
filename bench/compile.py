"""How long it takes to import, build and extract tasks from a real model: stock TVM and the relay engine, in turn.

Prints JSON: seconds of each step for each round, and the ratio of the totals' medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import zoo
from tuner import catalogue, environments
from tuner.inspection import Inspector
from tuner.session import EngineSession


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    model = zoo.MODELS[options.model]
    path = zoo.fetch(model, home)
    relay, reference = (_interpreter(name, home) for name in ("relay", "reference"))
    target = f"llvm -mcpu={options.mcpu or _mcpu(relay)}"
    stock: list[dict[str, float]] = []
    ours: list[dict[str, float]] = []
    for _ in range(options.rounds):
        stock.append(_stock(relay, path, model, target))
        ours.append(_ours(relay, reference, path, model, target))
    totals = [statistics.median(sum(each.values()) for each in side) for side in (stock, ours)]
    report = {"model": model.name, "target": target, "stock": stock, "ours": ours, "ratio": totals[0] / totals[1]}
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0


def _stock(python: Path, path: Path, model: zoo.ZooModel, target: str) -> dict[str, float]:
    command = [python, "-m", "bench.stock.compile", path, json.dumps(model.input_shapes), target]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return seconds


def _ours(relay: Path, reference: Path, path: Path, model: zoo.ZooModel, target: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        started = time.perf_counter()
        inspector = Inspector(spec=catalogue.get("reference"), python=reference)
        prepared = inspector.prepare(path, model.input_shapes, folder / "model.onnx")
        seconds = {"prepare": time.perf_counter() - started}
        common = {"model": str(prepared.path), "target": target, "threads": os.cpu_count()}
        steps = {
            "import": ("check", {"model": common["model"]}),
            "build": ("compile", {**common, "records": None, "out_dir": str(folder / "out")}),
            "extract": ("extract", common),
        }
        with EngineSession.start(catalogue.get("relay"), relay, log_path=folder / "engine.log") as engine:
            for step, (method, params) in steps.items():
                started = time.perf_counter()
                engine.request(method, params, timeout=1800)
                seconds[step] = time.perf_counter() - started
    return seconds


def _mcpu(python: Path) -> str:
    with (
        tempfile.TemporaryDirectory() as scratch,
        EngineSession.start(catalogue.get("relay"), python, log_path=Path(scratch) / "engine.log") as engine,
    ):
        return str(engine.hello["mcpu"])


def _interpreter(name: str, home: Path) -> Path:
    return environments.interpreter(catalogue.get(name), home)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench compile", description=__doc__)
    parser.add_argument("--model", choices=sorted(zoo.MODELS), default="ppocr-cls")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--mcpu", help="default: this machine's")
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
