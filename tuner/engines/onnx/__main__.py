"""Entry point of the onnx engine, ONNX Runtime: ``python -m tuner.engines.onnx --event-fd N``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import onnxruntime

from tuner.engines.onnx import arrays, models, operators, preparing, profiling, rows, sessions, sizing
from tuner.engines.onnx.accuracy import comparing, labels, perturbing
from tuner.engines.onnx.precisions import narrowing, quantizing
from tuner.engines.onnx.rewriting import applying
from tuner.engines.protocol import serving
from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import environment, progress


def _hello() -> Json:
    return {
        "engine": "onnx",
        "toolchain": {"engine": "onnx", "onnxruntime": onnxruntime.__version__},
        "methods": sorted(HANDLERS),
    }


def _make_inputs(params: Json, _: serving.Emitter) -> Json:
    Path(params["out_dir"]).mkdir(parents=True, exist_ok=True)
    return arrays.make_files(params["inputs"], params["seeds"], params["out_dir"], params.get("model"))


def _run(params: Json, _: serving.Emitter) -> Json:
    session = sessions.cached(params["path"], params["threads"])
    inputs = arrays.load(params["inputs"])
    started = time.perf_counter()
    outputs = sessions.run(session, inputs)
    seconds = time.perf_counter() - started
    arrays.save(params["outputs"], outputs)
    return {"seconds": seconds}


def _time(params: Json, _: serving.Emitter) -> Json:
    session = sessions.cached(params["path"], params["threads"])
    inputs = arrays.load(params["inputs"])
    samples = sessions.sample(session, inputs, number=params["number"], repeat=params["repeat"])
    environment.settle()
    return {"samples": samples}


def _compare(params: Json, _: serving.Emitter) -> Json:
    expected, actual = arrays.load(params["expected"]), arrays.load(params["actual"])
    outputs = comparing.compare(
        expected,
        actual,
        precision=params.get("precision") or "f32",
        max_rel=params.get("max_rel"),
        classifiers=comparing.classifier_outputs(params.get("model")),
        runs=perturbing.load(params["runs"]) if params.get("runs") else (),
        quantized=comparing.is_quantized(params.get("model")),
    )
    if not params.get("labels"):
        return {"outputs": outputs}
    given = arrays.load(params["labels"])[rows.LABELS]
    return {"outputs": outputs, "labelled": labels.compare(given, expected, actual)}


def _compare_sizes(params: Json, _: serving.Emitter) -> Json:
    return sizing.compare(
        params["small"], params["large"], params["inputs"], padding=params.get("padding"), threads=params["threads"]
    )


def _with_layers(chosen: Callable[..., Json]) -> serving.Handler:
    """Return the method that chooses layers of a model."""
    return progress.telling(
        lambda params, _: chosen(
            params["path"],
            params["inputs"],
            params["out_path"],
            threads=params["threads"],
            seconds=params["seconds"],
            max_rel=params.get("max_rel"),
            top1=params.get("top1"),
        )
    )


HANDLERS: dict[str, serving.Handler] = {
    "inspect": lambda params, _: models.inspect(params["path"]),
    "prepare": lambda params, _: preparing.prepare(
        params["path"], params.get("input_shapes") or {}, params["out_path"]
    ),
    "rewrite": lambda params, _: applying.rewrite(params["path"], params["lanes"], params["out_path"]),
    "quantize": _with_layers(quantizing.quantize),
    "narrow": _with_layers(narrowing.narrow),
    "make_operator": lambda params, _: operators.make(params),
    "make_inputs": _make_inputs,
    "inspect_rows": lambda params, _: rows.inspect(params["path"]),
    "split_rows": lambda params, _: rows.split(
        params["path"], params["inputs"], params["rows"], params["runs"], params["out_dir"]
    ),
    "run": _run,
    "run_perturbed": lambda params, _: perturbing.run(
        params["path"], params["inputs"], params["folders"], threads=params["threads"], seconds=params["seconds"]
    ),
    "time": _time,
    "profile": lambda params, _: profiling.profile(
        params["path"], params["inputs"], params["threads"], params["repeat"]
    ),
    "compare": _compare,
    "compare_sizes": _compare_sizes,
}

if __name__ == "__main__":
    sys.exit(serving.serve(HANDLERS, _hello))
