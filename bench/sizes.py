"""One library for several sizes on a mix of requests, beside ONNX Runtime and OpenVINO: ``./run bench sizes --json``.

Each model is tuned by one job for the sizes below, whose frequencies are those of the mix. Then all sides, each in a
process of its own, run the same requests in turns, a few at a time; ONNX Runtime and OpenVINO have the original model
with its open dimensions. Prints JSON: ``mean`` and ``p99`` of the requests' milliseconds, ``peak_mb`` and ``grown_mb``
(since before the runtime was imported) of each side, ``vs_better`` (the better side's value divided by ours),
``job_seconds``, the library's size, and what its sizes share.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import latency, note, show, zoo
from domain.ports import Engine
from tuner.host import environments, hardware
from tuner.host.session import EngineSession, Limits
from tunesmith.client import Client

Shape = list[int | list[int]]
_CHUNK = 10
"""Requests that a side runs before the next one's turn."""
_PASSES = 4
"""Over the mix; the first one, in which runtimes meet the sizes, is not counted."""
_SEED = 20
_TIMEOUT = 600.0
_LENGTHS = (16, 24, 32, 40, 56, 64, 88, 128)


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """A model, its entry points, and the requests that it gets."""

    shapes: Mapping[str, Shape]
    padding: Mapping[str, float]
    vocabulary: int | None = None
    """Of models whose inputs are tokens, a mask and types: the mask is 1, types are 0."""


_TOKENS = ("input_ids", "attention_mask", "token_type_ids")
MODELS = {
    "minilm": Mixed(
        shapes={name: [[1, 4], list(_LENGTHS)] for name in _TOKENS}, padding=dict.fromkeys(_TOKENS, 0),
        vocabulary=30_000,
    ),
    "opennsfw": Mixed(shapes={"input:0": [[1, 4, 8], 224, 224, 3]}, padding={}),
    "ppocr-cls": Mixed(shapes={"x": [[1, 4, 16], 3, 48, 192]}, padding={}),
}  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    environments.install(latency.OPENVINO, home, on_progress=note)
    rows = []
    for name in options.models:
        with tempfile.TemporaryDirectory(prefix="tunesmith-sizes-") as folder:
            rows.append({"model": name, **_row(name, options, home, Path(folder))})
        note(str(rows[-1]))
    show({"device": hardware.device(options.threads).key, "threads": options.threads, "seconds": options.seconds,
          "requests": options.requests, "rows": rows})  # fmt: skip
    return 0


def requests(model: Mixed, count: int) -> list[dict[str, list[int]]]:
    """Return the shapes of so many requests: most have one row, and lengths are those of sentences."""
    dice = random.Random(_SEED)  # noqa: S311 - no secret
    found = []
    for _ in range(count):
        batch = 1 if dice.random() < 0.7 else dice.randint(2, 8)
        length = min(max(_LENGTHS[0] // 4, round(dice.lognormvariate(3.2, 0.6))), _LENGTHS[-1])
        found.append({name: _shape(shape, batch, length) for name, shape in model.shapes.items()})
    return found


def _shape(shape: Shape, batch: int, length: int) -> list[int]:
    return [size if isinstance(size, int) else (length if axis else batch) for axis, size in enumerate(shape)]


def _row(name: str, options: argparse.Namespace, home: Path, folder: Path) -> dict[str, Any]:
    model, path = MODELS[name], zoo.fetch(zoo.MODELS[name], home)
    mix = requests(model, options.requests)
    bundle = folder / "bundle.tar"
    tuned = _tuned(name, path, mix, options, home, bundle)
    params = {"requests": mix, "vocabulary": model.vocabulary, "threads": options.threads}
    sides = {"ours": ("session", bundle), "onnxruntime": ("onnxruntime", path), "openvino": ("openvino f32", path)}
    with ExitStack() as stack:
        running = {
            side: (stack.enter_context(_start(side, home, folder)), {**params, "kind": kind, "bundle": str(file)})
            for side, (kind, file) in sides.items()
        }
        seconds = _timed(running, len(mix))
        described = running["ours"][0].request("describe", {"bundle": str(bundle)}, timeout=_TIMEOUT)
        peaks = {side: engine.request("peak", {}, timeout=_TIMEOUT) for side, (engine, _) in running.items()}
    measured = {side: _summed(seconds[side], peaks[side]) for side in sides}
    others = [measured[side] for side in sides if side != "ours"]
    better = {
        f"vs_better_{key}": min(other[key] for other in others) / measured["ours"][key] for key in ("mean", "p99")
    }
    return {
        **measured,
        **better,
        **_library(described),
        "job_seconds": tuned.job_seconds,
        "sizes": tuned.report["choice"],
        "summary": tuned.report["summary"],
    }


@dataclass(frozen=True, kw_only=True)
class _Tuned:
    report: Mapping[str, Any]
    job_seconds: float


def _tuned(
    name: str, path: Path, mix: Sequence[Mapping[str, list[int]]], options: argparse.Namespace, home: Path, bundle: Path
) -> _Tuned:
    """Tune the model and download the bundle. Raises errors of ``tunesmith.client``."""
    model, place = MODELS[name], bundle.parent / "service"
    place.mkdir()
    with latency.service(place, home), Client() as client:
        job = client.tune(
            client.upload(path, name=name), seconds=options.seconds, threads=options.threads,
            input_shapes=model.shapes, padding=dict(model.padding) or None,
            frequencies=[{"input_shapes": dict(shapes), "count": 1} for shapes in mix],
        )  # fmt: skip
        started = time.monotonic()
        job.wait()
        job_seconds = time.monotonic() - started
        job.artifact.download(bundle)
        return _Tuned(report=job.report(), job_seconds=job_seconds)


def _start(side: str, home: Path, folder: Path) -> EngineSession:
    spec = latency.OPENVINO if side == "openvino" else latency.SIDES
    return EngineSession.start(
        spec, environments.interpreter(spec, home), log_path=folder / f"{side}.log", home=home, limits=Limits()
    )


def _timed(running: Mapping[str, tuple[Engine, dict[str, Any]]], count: int) -> dict[str, list[float]]:
    """Seconds of each request and counted pass, by side."""
    seconds: dict[str, list[float]] = {side: [] for side in running}
    for number in range(_PASSES):
        for first in range(0, count, _CHUNK):
            for side, (engine, params) in running.items():
                asked = {**params, "first": first, "count": min(_CHUNK, count - first)}
                found = engine.request("mix", asked, timeout=_TIMEOUT)["seconds"]
                seconds[side] += found if number else []
    return seconds


def _summed(seconds: Sequence[float], peak: Mapping[str, int]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "mean": 1000 * sum(ordered) / len(ordered),
        "median": 1000 * ordered[len(ordered) // 2],
        "p99": 1000 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
        "peak_mb": peak["bytes"] / 1e6,
        "grown_mb": peak["grown"] / 1e6,
    }


def _library(described: Mapping[str, Any]) -> dict[str, float]:
    """Megabytes of the library, its weights, and the largest entry point's arena."""
    entries = len(described["arenas"])
    return {
        "library_mb": described["library"] / 1e6,
        "weights_mb": described["weights"] / 1e6,
        "arena_mb": max(described["arenas"]) / 1e6,
        "entries": entries,
        "kb_per_entry_beyond_weights": (described["library"] - described["weights"]) / entries / 1e3,
    }


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench sizes", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=600.0, help="of tuning, for all sizes of a model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
