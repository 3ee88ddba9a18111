"""Time per operator of a compiled model and of ONNX Runtime, slowest first.

``./run bench layers --model NAME`` builds the model untuned; ``--bundle FOLDER`` profiles an unpacked bundle instead.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import engines, show, zoo
from tuner.results import verification

_KINDS = (
    ("depthwise", "depthwise convolution"), ("conv2d_transpose", "transposed convolution"), ("conv", "convolution"),
    ("dense", "product"), ("matmul", "product"), ("gemm", "product"), ("layout_transform", "layout"),
    ("reorder", "layout"), ("transpose", "layout"), ("pool", "pooling"), ("softmax", "softmax"),
    ("concat", "concatenation"),
)  # fmt: skip
"""The first entry whose text occurs in an operator's name determines its kind; the rest is ``other``."""
Layer = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    home = Path(os.environ["TUNESMITH_HOME"])
    with tempfile.TemporaryDirectory(prefix="tunesmith-layers-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        names = ("relay", "library", "onnx")
        relay, library, reference = (stack.enter_context(engines.start(name, home, folder)) for name in names)
        model = zoo.MODELS[options.model]
        path = zoo.fetch(model, home)
        prepared = engines.inspector(home).prepare(path, model.input_shapes, folder / "prepared.onnx")
        seeded = verification.seed_inputs(reference, prepared.inputs, folder / "inputs", model=prepared.path, seeds=[0])
        bundle = options.bundle or engines.build_untuned(
            relay, prepared.path, folder / "untuned", threads=options.threads
        )
        common = {"inputs": str(seeded.paths[0]), "threads": options.threads, "repeat": options.repeat}
        ours = library.request("profile", {"bundle": str(bundle), **common}, timeout=600)["layers"]
        theirs = reference.request("profile", {"path": str(prepared.path), **common}, timeout=600)["layers"]
    report = {
        "model": model.name, "threads": options.threads, "tvm": summary(ours, options.top),
        "onnxruntime": summary(theirs, options.top),
    }  # fmt: skip
    show(report)
    return 0


def summary(layers: Sequence[Layer], top: int) -> dict[str, Any]:
    """Return milliseconds in total, by kind of operator, and of the slowest ``top`` layers."""
    by_kind: dict[str, float] = defaultdict(float)
    for layer in layers:
        by_kind[_kind(layer)] += layer["seconds"] * 1e3
    slowest = sorted(layers, key=lambda layer: -layer["seconds"])[:top]
    return {
        "ms": round(sum(by_kind.values()), 3),
        "by_kind_ms": {kind: round(ms, 3) for kind, ms in sorted(by_kind.items(), key=lambda pair: -pair[1])},
        "slowest": [{**layer, "ms": round(layer["seconds"] * 1e3, 4)} for layer in slowest],
    }


def _kind(layer: Layer) -> str:
    name = f"{layer.get('operator', '')} {layer['name']}".lower()
    return next((kind for part, kind in _KINDS if part in name), "other")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench layers", description=__doc__)
    parser.add_argument("--model", choices=sorted(zoo.MODELS), default="ppocr-cls")
    parser.add_argument("--bundle", type=Path, help="unpacked bundle with a libmodel.so")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--top", type=int, default=12)
    parser.add_argument("--json", action="store_true", help="JSON is what it prints anyway")
    return parser.parse_args(arguments)
