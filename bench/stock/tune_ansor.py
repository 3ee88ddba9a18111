"""Ansor as in TVM's tutorials: TaskScheduler, LocalBuilder and LocalRunner with their defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import auto_scheduler, relay  # noqa: F401 - relay registers what workloads are made of
from tvm.auto_scheduler.compute_dag import LayoutRewriteOption
from tvm.auto_scheduler.workload_registry import register_workload_tensors
from tvm.runtime._ffi_node_api import LoadJSON

from bench.stock import serving
from bench.stock.serving import Json, Tuned
from bench.stock.tune_autotvm import timer


class Side:
    def __init__(self, target: str, threads: int, folder: str) -> None:
        self._target = tvm.target.Target(f"{target} -num-cores={threads}")
        self._folder = Path(folder)
        self._model = auto_scheduler.XGBModel()

    def tune(self, task: Json, trials: int) -> Tuned:
        known = self._task(task)
        log = self._folder / f"stock-{task['position']}.json"
        # One cost model for all tasks, as with a scheduler of all of them.
        policy = auto_scheduler.SketchPolicy(known, self._model, verbose=0)
        options = auto_scheduler.TuningOptions(
            num_measure_trials=trials, measure_callbacks=[auto_scheduler.RecordToFile(str(log))], verbose=0
        )
        auto_scheduler.TaskScheduler([known]).tune(options, search_policy=[policy])
        measured = list(zip(log.read_text().splitlines(), auto_scheduler.load_records(str(log)), strict=True))
        valid = [(line, result) for line, (_, result) in measured if int(result.error_no) == 0]
        best = min(valid, key=lambda pair: float(np.mean([cost.value for cost in pair[1].costs])), default=(None, None))
        return Tuned(best=best[0], trials=len(measured), valid=len(valid))

    def load(self, task: Json, line: str) -> Callable[[], float]:
        known = self._task(task)
        recorded, _ = auto_scheduler.measure_record.load_record_from_string(line)
        schedule, arguments = known.compute_dag.apply_steps_from_state(
            recorded.state, layout_rewrite=known.layout_rewrite_option
        )
        with tvm.transform.PassContext(opt_level=3):
            library = tvm.build(schedule, arguments, target=self._target)
        return timer(library, arguments)

    def _task(self, task: Json) -> Any:
        text = Path(task["definition"]).read_text(encoding="utf-8")
        register_workload_tensors(task["workload_key"], list(LoadJSON(text)))
        option = LayoutRewriteOption.get_target_default(self._target, True)
        return auto_scheduler.SearchTask(
            workload_key=task["workload_key"], target=self._target, layout_rewrite_option=option
        )


if __name__ == "__main__":
    serving.serve(Side)
