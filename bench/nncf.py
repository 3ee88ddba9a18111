"""OpenVINO with NNCF's int8, beside OpenVINO in f32: ``python -m bench.nncf MODEL.onnx DATA.npz``.

Every fourth row calibrates, as in a job; others judge. Prints JSON: the largest error as a share of the output's
largest value, the share of rows whose largest element stays (of outputs [1, classes]), and the least milliseconds of
both, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_MOST_CALIBRATION, _MOST_JUDGING = 64, 64
_ROUNDS = 20


def main() -> None:
    # Its statistics would go to a server.
    os.environ["NNCF_CI"] = "1"
    import nncf
    import openvino

    options = _options()
    core = openvino.Core()
    model = core.read_model(options.model)
    if options.shapes:
        model.reshape({name: tuple(shape) for name, shape in options.shapes.items()})
    with np.load(options.data) as found:
        arrays = {name: found[name] for name in found.files if name != "labels"}
    count = len(next(iter(arrays.values())))
    rows = [{name: array[row : row + 1] for name, array in arrays.items()} for row in range(count)]
    calibration = [row for place, row in enumerate(rows) if place % 4 == 0][:_MOST_CALIBRATION]
    judging = [row for place, row in enumerate(rows) if place % 4][:_MOST_JUDGING]
    quantized = nncf.quantize(model, nncf.Dataset(calibration), subset_size=len(calibration))
    settings = {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": options.threads,
        "INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    }  # fmt: skip
    plain, narrow = (core.compile_model(each, "CPU", settings).create_infer_request() for each in (model, quantized))
    agreement = _agreement(plain, narrow, judging)
    print(json.dumps({**agreement, "rows": len(judging), **_times(plain, narrow, judging[0])}))  # noqa: T201 - the answer


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shapes", type=json.loads, help="of inputs, as JSON")
    return parser.parse_args()


def _agreement(plain: Any, narrow: Any, rows: list[Mapping[str, Any]]) -> dict[str, float | None]:
    worst, agreed, classified = 0.0, 0, 0
    for row in rows:
        expected = [np.array(value) for value in plain.infer(dict(row)).values()]
        actual = [np.array(value) for value in narrow.infer(dict(row)).values()]
        for wanted, found in zip(expected, actual, strict=True):
            worst = max(worst, float(np.abs(wanted - found).max() / max(np.abs(wanted).max(), 1e-3)))
            if wanted.ndim == 2 and wanted.shape[1] > 1:
                classified += 1
                agreed += int(wanted.argmax() == found.argmax())
    return {"max_rel": worst, "top1": agreed / classified if classified else None}


def _times(plain: Any, narrow: Any, row: Mapping[str, Any]) -> dict[str, float]:
    least = {"f32_ms": float("inf"), "int8_ms": float("inf")}
    for _ in range(_ROUNDS):
        for name, request in (("f32_ms", plain), ("int8_ms", narrow)):
            request.infer(dict(row))
            started = time.perf_counter()
            request.infer(dict(row))
            least[name] = min(least[name], 1000 * (time.perf_counter() - started))
    return least


if __name__ == "__main__":
    main()
