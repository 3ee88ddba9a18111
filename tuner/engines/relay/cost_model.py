"""AutoTVM's XGBoost cost model and the search over its predictions, fit for small budgets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from tvm.autotvm.tuner import xgboost_cost_model
from tvm.autotvm.tuner.model_based_tuner import ModelOptimizer
from tvm.autotvm.tuner.sa_model_optimizer import SimulatedAnnealingOptimizer
from tvm.contrib.popen_pool import MapResult, StatusKind

EXHAUSTIVE_SPACE = 4096
"""Up to this many schedules are all predicted (0.1 s); annealing would take longer and find less."""


class CostModel(xgboost_cost_model.XGBoostCostModel):
    """``XGBoostCostModel`` that extracts features in this process.

    The original starts a process pool before every fit, whose children import TVM first: seconds for features that
    take microseconds each.
    """

    def __init__(self, task: Any, *, feature_type: str, loss_type: str) -> None:
        super().__init__(task, feature_type, loss_type, num_threads=1, log_interval=0)
        if loss_type == "reg":
            # XGBoost 3 dropped the old name.
            self.xgb_params["objective"] = "reg:squarederror"

    def _reset_pool(self, space: Any, target: Any, task: Any) -> None:
        xgboost_cost_model._extract_popen_initializer(space, target, task)

    def _get_pool(self) -> _InProcess:
        # Another task's model may have fitted since.
        self._reset_pool(self.space, self.target, self.task)
        return _InProcess()


class _InProcess:
    """Stands in for ``PopenPoolExecutor``."""

    def map_with_error_catching(self, function: Any, items: Iterable[Any]) -> list[MapResult]:
        return [self._call(function, item) for item in items]

    def _call(self, function: Any, item: Any) -> MapResult:
        try:
            return MapResult(status=StatusKind.COMPLETE, value=function(item))
        except Exception as error:  # noqa: BLE001 - a schedule without features scores as zeros, as in the original
            return MapResult(status=StatusKind.EXCEPTION, value=error)


class ExhaustiveOptimizer(ModelOptimizer):
    """Predicts every schedule that was not measured yet and returns the best."""

    def __init__(self, task: Any) -> None:
        super().__init__()
        self._space = task.config_space

    def find_maximums(self, model: Any, num: int, exclusive: set[int]) -> list[int]:
        space = self._space
        points = [
            point for point in range(space.range_length) if point not in exclusive and space.is_index_valid(point)
        ]
        if not points:
            return []
        order = np.argsort(-model.predict(points), kind="stable")
        return [points[position] for position in order[:num]]


def optimizer(task: Any, feature_type: str) -> Any:
    """Exhaustive for small spaces and cheap features; else annealing, cut short to a second or two."""
    if feature_type == "knob" and task.config_space.range_length <= EXHAUSTIVE_SPACE:
        return ExhaustiveOptimizer(task)
    return SimulatedAnnealingOptimizer(task, n_iter=160, early_stop=40, log_interval=0)
