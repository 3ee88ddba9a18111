"""AutoTVM as in TVM's tutorials: XGBTuner, LocalBuilder and LocalRunner with their defaults."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import autotvm, relay  # noqa: F401 - relay registers the templates
from tvm.autotvm.tuner import XGBTuner

from bench.stock import serving
from bench.stock.serving import Json, Tuned

LOSS = "rank-binary"
"""TVM 0.19 rejects the tutorials' ``rank`` on XGBoost 2 and newer."""


class Side:
    def __init__(self, target: str, threads: int, folder: str) -> None:
        self._target = tvm.target.Target(f"{target} -num-cores={threads}")
        self._folder = folder

    def tune(self, task: Json, trials: int) -> Tuned:
        option = autotvm.measure_option(builder=autotvm.LocalBuilder(), runner=autotvm.LocalRunner())
        measured: list[tuple[Any, Any]] = []

        def keep(_: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
            measured.extend(zip(inputs, results, strict=True))

        XGBTuner(self._task(task), loss_type=LOSS).tune(n_trial=trials, measure_option=option, callbacks=[keep])
        valid = [pair for pair in measured if pair[1].error_no == 0]
        best = min(valid, key=lambda pair: float(np.mean(pair[1].costs)), default=None)
        line = autotvm.record.encode(*best) if best else None
        return Tuned(best=line, trials=len(measured), valid=len(valid))

    def load(self, task: Json, line: str) -> Callable[[], float]:
        own, _ = autotvm.record.decode(line)
        autotvm.GLOBAL_SCOPE.in_tuning = True
        known = self._task(task)
        with known.target, tvm.transform.PassContext(opt_level=3):
            schedule, arguments = known.instantiate(own.config)
            library = tvm.build(schedule, arguments, target=known.target)
        return timer(library, arguments)

    def _task(self, task: Json) -> Any:
        name, arguments = json.loads(task["workload_key"])
        return autotvm.task.create(name, _tuples(arguments), target=self._target)


def timer(library: Any, arguments: Sequence[Any]) -> Callable[[], float]:
    device = tvm.cpu(0)
    generator = np.random.default_rng(0)
    arrays = [
        tvm.nd.array(generator.standard_normal([int(size) for size in each.shape]).astype(each.dtype), device)
        for each in arguments
    ]
    evaluator = library.time_evaluator(library.entry_name, device, number=1, repeat=1, min_repeat_ms=5)
    return lambda: float(evaluator(*arrays).results[0])


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


if __name__ == "__main__":
    serving.serve(Side)
