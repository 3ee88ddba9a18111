"""How fast tuned models are beside untuned ones, ONNX Runtime and OpenVINO: ``./run bench latency --json``.

Each model is tuned by a job of the service, on a home folder of its own; then everything is timed in turns, in one run
a model. Prints JSON: milliseconds, what was verified, and geometric means of the ratios.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import hosting, latency_model, latency_tuning, zoo
from tuner import catalogue, environments, hostinfo

MODELS = (
    "ppocr-cls", "ppocr-det", "ppocr-rec", "magika", "yolox-det", "minilm", "squeezenet", "shufflenet", "resnet50",
    "densenet121", "inception-v1",
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    paths = {name: zoo.fetch(zoo.MODELS[name], home) for name in options.models}
    environments.install(latency_model.OPENVINO, home, on_progress=_note)
    pythons = latency_model.Pythons.of(home)
    measured: list[dict[str, Any]] = []
    with _folder(options.keep) as folder:
        _tune(paths, options, home, folder)
        for name, path in paths.items():
            model = latency_model.Model(name=name, path=path, shapes=zoo.MODELS[name].input_shapes)
            bundles = latency_tuning.bundles(folder, name)
            row = latency_model.measure(model, bundles, pythons, folder / name, threads=options.threads)
            measured.append(row)
            _note(f"{name}: {row}")
    device = hostinfo.device(options.threads)
    report = {
        "device": device.key, "threads": options.threads, "seconds": options.seconds, "tuner": options.tuner,
        "models": measured, **summary(measured),
    }  # fmt: skip
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0


def _tune(paths: dict[str, Path], options: argparse.Namespace, home: Path, folder: Path) -> None:
    wanted = [
        (name, precision)
        for name in paths
        for precision in options.precisions
        if not latency_tuning.done(folder, name, precision)
    ]
    if not wanted:
        return
    for spec in catalogue.ENGINES.values():
        # The jobs get a home folder without records, and the engines of the usual one.
        os.environ[environments.variable(spec)] = str(environments.interpreter(spec, home))
    os.environ["TUNESMITH_HOME"] = str(folder)
    with hosting.running(folder, say=_note):
        for name, precision in wanted:
            job = latency_tuning.tune(
                folder, name, paths[name], precision=precision, shapes=zoo.MODELS[name].input_shapes,
                tuner=options.tuner, seconds=options.seconds, threads=options.threads,
            )  # fmt: skip
            _note(f"{name} {precision}: {job}")


def summary(models: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Geometric means of ratios, over 1 where the tuned model is faster; None where nothing can be compared."""
    pairs = {
        "geomean_vs_untuned": ("untuned_ms", "tuned_ms"),
        "geomean_vs_ort": ("ort_ms", "tuned_ms"),
        "geomean_vs_openvino": ("openvino_ms", "tuned_ms"),
        "geomean_bf16_vs_openvino_default": ("openvino_default_ms", "tuned_bf16_ms"),
        "geomean_bf16_vs_ort": ("ort_ms", "tuned_bf16_ms"),
    }
    return {name: _geomean(models, *columns) for name, columns in pairs.items()}


def _geomean(models: Sequence[dict[str, Any]], slower: str, faster: str) -> float | None:
    ratios = [row[slower] / row[faster] for row in models if row.get(slower) and row.get(faster)]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="tunesmith-latency-") as scratch:
        yield Path(scratch)


def _note(line: str) -> None:
    sys.stderr.write(line + "\n")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench latency", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=sorted(zoo.MODELS), default=list(MODELS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=300.0, help="of tuning, for each model and precision")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tuner", default="auto")
    parser.add_argument("--precisions", nargs="+", default=["f32"], choices=["f32", "bf16", "int8", "auto"])
    parser.add_argument(
        "--keep", type=Path, help="folder of jobs, records and bundles; what it has is timed and not tuned again"
    )
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
