"""MetaSchedule as TVM uses it: ``tune_tasks`` with its own builder, runner, scheduler and cost model."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import s_tir
from tvm.s_tir import meta_schedule

from bench.stock import serving
from bench.stock.serving import Json, Tuned

_FAILED_SECONDS = 1e9


class Side:
    def __init__(self, target: str, threads: int, folder: str) -> None:
        kind, *options = target.split()
        values = dict(option.removeprefix("-").split("=", 1) for option in options)
        self._target = tvm.target.Target({"kind": kind, **values, "num-cores": threads})
        self._folder = Path(folder)
        self._model = meta_schedule.cost_model.XGBModel()

    def tune(self, task: Json, trials: int) -> Tuned:
        folder = tempfile.mkdtemp(prefix=f"stock-{task['position']}-", dir=self._folder)
        context = meta_schedule.TuneContext(
            mod=self._workload(task).mod,
            target=self._target,
            space_generator="post-order-apply",
            search_strategy="evolutionary",
            task_name=task["name"],
            num_threads="physical",
            rand_state=1,
        )
        meta_schedule.tune_tasks(
            tasks=[context],
            task_weights=[1.0],
            work_dir=folder,
            max_trials_global=trials,
            # One model for all tasks, as with a scheduler of all of them.
            cost_model=self._model,
        )
        lines = (Path(folder) / "database_tuning_record.json").read_text(encoding="utf-8").splitlines()
        valid = [line for line in lines if _seconds(line) < _FAILED_SECONDS]
        best = min(valid, key=_seconds, default=None)
        return Tuned(best=best, trials=len(lines), valid=len(valid))

    def load(self, task: Json, line: str) -> Callable[[], float]:
        work = self._workload(task)
        _, body = json.loads(line)
        _restore_truth(body[0][0])
        schedule = s_tir.Schedule(work.mod)
        record = meta_schedule.database.TuningRecord.from_json(body, work)
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
        module = s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
        with self._target, tvm.transform.PassContext(opt_level=3):
            library = tvm.tirx.build(module, target=self._target)
        return _timer(library, body[3])

    def _workload(self, task: Json) -> Any:
        definition = json.loads(Path(task["definition"]).read_text(encoding="utf-8"))
        return meta_schedule.database.Workload.from_json(definition)


def _seconds(line: str) -> float:
    costs = json.loads(line)[1][1] or [math.inf]
    return sum(map(float, costs)) / len(costs)


def _restore_truth(instructions: list[Any]) -> None:
    """Restore booleans: TVM writes them as numbers, which replay as another annotation."""
    for name, inputs, attributes, _ in instructions:
        if name == "Annotate" and attributes == ["meta_schedule.layout_rewrite_preproc"] and inputs[1] == 1:
            inputs[1] = True


def _timer(library: Any, infos: list[Any]) -> Callable[[], float]:
    device = tvm.cpu(0)
    generator = np.random.default_rng(0)
    arrays = [
        tvm.runtime.tensor(generator.standard_normal([int(size) for size in shape]).astype(dtype), device)
        for _, dtype, shape in infos
    ]
    evaluator = library.time_evaluator("main", device, number=1, repeat=1, min_repeat_ms=5)
    return lambda: float(evaluator(*arrays).results[0])


if __name__ == "__main__":
    serving.serve(Side)
