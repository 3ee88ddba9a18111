"""Import, build and extract tasks as TVM's tutorials do; prints seconds of each as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import onnx
from tvm import autotvm, relay


def main() -> None:
    path, shapes, target = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        seconds[name] = time.perf_counter() - started
        return result

    model = onnx.load(path)
    fixed = {name: tuple(shape) for name, shape in shapes.items()}
    module, params = timed("import", lambda: relay.frontend.from_onnx(model, fixed, freeze_params=True))
    # A context of records keeps TVM from trying to download its own: that would time the network.
    with autotvm.task.ApplyHistoryBest([]):
        timed("build", lambda: relay.build(module, target=target, params=params))
        timed("extract", lambda: autotvm.task.extract_from_program(module["main"], target=target, params=params))
    sys.stdout.write(json.dumps(seconds))


if __name__ == "__main__":
    main()
