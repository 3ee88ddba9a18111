"""What a second job costs: ``./run bench reuse --json``.

Three jobs through the service, one after the other, on a home folder of their own: a real model; the same model again;
a model that shares all its layers but the last. Prints trials, seconds and stages of each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import hosting, zoo
from tuner import catalogue, environments
from tunesmith.client import Client


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    model = zoo.MODELS[options.model]
    path = zoo.fetch(model, home)
    for spec in catalogue.ENGINES.values():
        # The jobs get a home folder without records, and the engines of the usual one.
        os.environ[environments.variable(spec)] = str(environments.interpreter(spec, home))
    with tempfile.TemporaryDirectory(prefix="tunesmith-reuse-") as scratch:
        relative = Path(scratch) / "another-head.onnx"
        python = environments.interpreter(catalogue.get("reference"), home)
        subprocess.run([python, "-m", "bench.another_head", path, relative], check=True)
        os.environ["TUNESMITH_HOME"] = scratch
        with hosting.running(Path(scratch), say=_note):
            jobs = {
                "first": _job(path, model, options),
                "second": _job(path, model, options),
                "shared_layers": _job(relative, model, options),
            }
    first, second = jobs["first"], jobs["second"]
    report = {"model": model.name, "tuner": options.tuner, "budget": _budget(options), **jobs}
    report["ratio_seconds"] = first["seconds"] / second["seconds"]
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0


def _job(path: Path, model: zoo.ZooModel, options: argparse.Namespace) -> dict[str, Any]:
    with Client() as client:
        uploaded = client.upload(path)
        job = client.tune(uploaded, tuner=options.tuner, input_shapes=model.input_shapes, **_budget(options))
        job.wait()
        trials = job.data["trials_done"]
        _note(f"{path.stem}: {trials} trials, {job.data['run_seconds']:.1f} s")
        return {
            "trials": trials,
            "seconds": job.data["run_seconds"],
            "tasks": len(job.data["tasks"]),
            "tasks_searched": sum(task["trials_planned"] > 0 for task in job.data["tasks"]),
            "stages": {stage["stage"]: stage["seconds"] for stage in job.data["timeline"]},
            "published": job.report()["published"],
        }


def _budget(options: argparse.Namespace) -> dict[str, Any]:
    return {"trials": options.trials, "seconds": options.seconds}


def _note(line: str) -> None:
    sys.stderr.write(line + "\n")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench reuse", description=__doc__)
    parser.add_argument("--model", choices=["ppocr-cls"], default="ppocr-cls", help="one that ends in a dense layer")
    parser.add_argument("--tuner", default="autotvm")
    parser.add_argument("--trials", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
