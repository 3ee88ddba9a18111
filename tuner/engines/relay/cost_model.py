"""AutoTVM's XGBoost cost model and the search over its predictions, fit for small budgets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from tvm import autotvm
from tvm.autotvm.measure import MeasureInput
from tvm.autotvm.tuner import xgboost_cost_model
from tvm.autotvm.tuner.model_based_tuner import ModelOptimizer
from tvm.autotvm.tuner.sa_model_optimizer import SimulatedAnnealingOptimizer
from tvm.contrib.popen_pool import MapResult, StatusKind

EXHAUSTIVE_SPACE = 4096
"""Up to this many schedules are all predicted (0.1 s); annealing would take longer and find less."""


LOSSES = ("rank", "rank-binary", "reg")
FEATURES = ("knob", "itervar", "curve")
TRANSFERABLE = ("itervar", "curve")
"""Features of loops and memory accesses, which mean the same in every search space. A knob's value does not: what it is
worth depends on the sizes that it tiles, and templates of one name differ in their knobs."""


class CostModel(xgboost_cost_model.XGBoostCostModel):
    """``XGBoostCostModel`` that extracts features in this process and runs on XGBoost 3 with every loss.

    The original starts a process pool before every fit, whose children import TVM first: seconds for features that
    take microseconds (``knob``) or milliseconds (``itervar``, ``curve``) each.

    ``rank`` and ``rank-binary`` both train on pairs ordered by throughput. They differ in what ends the training: the
    recall of the best schedules, or of those with at least half of the best throughput. TVM refuses ``rank`` on
    XGBoost 2 and newer because XGBoost's own ranking metric, which it computes beside the recall, refuses real-valued
    labels; that metric is read by nobody, and is left out here.
    """

    def __init__(self, task: Any, *, feature_type: str, loss_type: str, upper_model: CostModel | None = None) -> None:
        super().__init__(task, feature_type, loss_type, num_threads=1, log_interval=0, upper_model=upper_model)
        self._loss = loss_type
        if loss_type == "reg":
            # XGBoost 3 dropped the old name.
            self.xgb_params["objective"] = "reg:squarederror"
        if loss_type == "rank":
            self.xgb_params["disable_default_eval_metric"] = True
            # What the original's callback goes by: labels are evaluated as they are.
            self.loss_type = "reg"

    def spawn_base_model(self) -> CostModel:
        """A model for records of other workloads; of loops if this one's features mean nothing to others."""
        feature = self.fea_type if self.fea_type in TRANSFERABLE else TRANSFERABLE[0]
        return CostModel(self.task, feature_type=feature, loss_type=self._loss, upper_model=self)

    def predict(self, xs: Sequence[int], output_margin: bool = False) -> Any:
        """Scores, the higher the faster; loop features are padded or cut to as many as the model was taught with."""
        if self.upper_model is None:
            return super().predict(xs, output_margin)
        features = self._get_feature(xs)
        taught = self.bst.num_features()
        features = np.pad(features, ((0, 0), (0, max(0, taught - features.shape[1]))))[:, :taught]
        return self.bst.predict(xgboost_cost_model.xgb.DMatrix(features), output_margin=output_margin)

    def _reset_pool(self, space: Any, target: Any, task: Any) -> None:
        xgboost_cost_model._extract_popen_initializer(space, target, task)

    def _get_pool(self) -> _InProcess:
        # Another task's model may have fitted since.
        self._reset_pool(self.space, self.target, self.task)
        return _InProcess()


class _InProcess:
    """Stands in for ``PopenPoolExecutor``."""

    def map_with_error_catching(self, function: Any, items: Iterable[Any]) -> list[MapResult]:
        # Loops are those of the operator inside a network, whose neighbours hand it packed tensors.
        before, autotvm.GLOBAL_SCOPE.in_tuning = autotvm.GLOBAL_SCOPE.in_tuning, True
        try:
            return [self._call(function, item) for item in items]
        finally:
            autotvm.GLOBAL_SCOPE.in_tuning = before

    def _call(self, function: Any, item: Any) -> MapResult:
        try:
            return MapResult(status=StatusKind.COMPLETE, value=function(item))
        except Exception as error:  # noqa: BLE001 - a schedule without features scores as zeros, as in the original
            return MapResult(status=StatusKind.EXCEPTION, value=error)


def comparable(pairs: Sequence[Any], tasks: Sequence[Any]) -> list[Any]:
    """``(MeasureInput, MeasureResult)`` of several workloads, made to teach one model which schedules are good.

    ``tasks`` has the ``Task`` of each pair. Each valid cost becomes what makes the throughput, which is what models
    learn, the share of the best of its workload; else they would learn which workloads are fast.
    """
    best: dict[str, float] = {}
    for task, (_, result) in zip(tasks, pairs, strict=True):
        if result.error_no == 0:
            best[task.workload] = min(best.get(task.workload, np.inf), float(np.mean(result.costs)))
    return [
        (
            MeasureInput(own.target, task, own.config),
            result._replace(costs=[np.mean(result.costs) / best[task.workload] * task.flop])
            if result.error_no == 0
            else result,
        )
        for task, (own, result) in zip(tasks, pairs, strict=True)
    ]


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
    if feature_type != "knob":
        # Each point costs an instantiation, some 5 ms; the next plan goes on from where this one ended.
        return SimulatedAnnealingOptimizer(task, n_iter=4, parallel_size=64, log_interval=0)
    if task.config_space.range_length <= EXHAUSTIVE_SPACE:
        return ExhaustiveOptimizer(task)
    return SimulatedAnnealingOptimizer(task, n_iter=160, early_stop=40, log_interval=0)
