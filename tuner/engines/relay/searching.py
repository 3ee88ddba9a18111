"""AutoTVM search methods and cost model for one task, adapted to small budgets and round-by-round measurements."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from tvm import autotvm
from tvm.autotvm.measure import MeasureInput
from tvm.autotvm.tuner import xgboost_cost_model
from tvm.autotvm.tuner.model_based_tuner import ModelBasedTuner, ModelOptimizer
from tvm.autotvm.tuner.sa_model_optimizer import SimulatedAnnealingOptimizer
from tvm.contrib.popen_pool import MapResult, StatusKind

from tuner.engines.relay import workloads
from tuner.engines.relay.workloads import Pair

EXHAUSTIVE_SPACE = 4096
"""Up to this size all schedules of a space are predicted (0.1 s); annealing would take longer and find less."""


LOSSES = ("rank", "rank-binary", "reg")
FEATURES = ("knob", "itervar", "curve")
TRANSFERABLE = ("itervar", "curve")
"""Features of loops and memory accesses, which mean the same in every search space. A knob's value does not: its effect
depends on the sizes that it tiles, and templates of one name differ in their knobs."""


class CostModel(xgboost_cost_model.XGBoostCostModel):
    """``XGBoostCostModel`` that extracts features in this process and supports every loss on XGBoost 3.

    The original starts a process pool before every fit, whose children import TVM first: seconds for features that take
    microseconds (``knob``) or milliseconds (``itervar``, ``curve``) each.

    ``rank`` and ``rank-binary`` both train on pairs ordered by throughput. They differ in the stopping metric: the
    recall of the best schedules, or of those with at least half of the best throughput. TVM rejects ``rank`` on XGBoost
    2 and newer because XGBoost's default ranking metric, computed beside the recall, rejects real-valued labels. That
    metric is unused, so it is disabled here.
    """

    def __init__(self, task: Any, *, feature_type: str, loss_type: str, upper_model: CostModel | None = None) -> None:
        super().__init__(task, feature_type, loss_type, num_threads=1, log_interval=0, upper_model=upper_model)
        self._loss = loss_type
        if loss_type == "reg":
            # XGBoost 3 dropped the old name.
            self.xgb_params["objective"] = "reg:squarederror"
        if loss_type == "rank":
            self.xgb_params["disable_default_eval_metric"] = True
            # Read by the original's callback: labels are evaluated as they are.
            self.loss_type = "reg"

    def spawn_base_model(self) -> CostModel:
        """Return a model for records of other workloads, with loop features if this model's do not transfer."""
        feature = self.fea_type if self.fea_type in TRANSFERABLE else TRANSFERABLE[0]
        return CostModel(self.task, feature_type=feature, loss_type=self._loss, upper_model=self)

    def predict(self, xs: Sequence[int], output_margin: bool = False) -> Any:
        """Return scores, higher for faster; loop features are padded or cut to the model's number of features."""
        if self.upper_model is None:
            return super().predict(xs, output_margin)
        features = self._get_feature(xs)
        taught = self.bst.num_features()
        features = np.pad(features, ((0, 0), (0, max(0, taught - features.shape[1]))))[:, :taught]
        return self.bst.predict(xgboost_cost_model.xgb.DMatrix(features), output_margin=output_margin)

    def _reset_pool(self, space: Any, target: Any, task: Any) -> None:
        xgboost_cost_model._extract_popen_initializer(space, target, task)

    def _get_pool(self) -> _InProcess:
        # Another task's model may have been fitted since.
        self._reset_pool(self.space, self.target, self.task)
        return _InProcess()


class _InProcess:
    """In-process replacement for ``PopenPoolExecutor``."""

    def map_with_error_catching(self, function: Any, items: Iterable[Any]) -> list[MapResult]:
        # Extract the loops of the operator as inside a network, where neighbours pass packed tensors.
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
    """Make ``(MeasureInput, MeasureResult)`` pairs of several workloads comparable, to train one model on them.

    ``tasks`` contains the ``Task`` of each pair. Models learn throughput, so each valid cost is replaced by one whose
    throughput is relative to the best of its workload; otherwise they would learn which workloads are fast.
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
    """Predicts every unmeasured schedule and returns the best."""

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
    """Return an exhaustive optimizer for small spaces and cheap features, else annealing limited to a second or two."""
    if feature_type != "knob":
        # Each point requires an instantiation, about 5 ms; the next plan continues where this one ended.
        return SimulatedAnnealingOptimizer(task, n_iter=4, parallel_size=64, log_interval=0)
    if task.config_space.range_length <= EXHAUSTIVE_SPACE:
        return ExhaustiveOptimizer(task)
    return SimulatedAnnealingOptimizer(task, n_iter=160, early_stop=40, log_interval=0)


PLAN_SIZE = 16
"""Trials between two fits of the cost model, and the size of a generation.

XGBTuner's 64 and GATuner's 100 would leave a small budget to chance.
"""
MOST_TAUGHT = 192
"""Maximum number of other workloads' records used for training: a second of feature extraction per task."""
SMALL_SPACE, FEW_TAUGHT = 64, 96
"""A space of at most ``SMALL_SPACE`` schedules is soon measured completely, so fewer records are used to rank it."""
LEAST_TAUGHT = 32
"""Minimum number of records for a useful model; AutoTVM's own limit, 500, is more than a whole job may have here."""
FIRST_CHOICE = 128
"""Number of random schedules that the first plan is chosen from, if the space is too large to predict in a second."""
_BARREN_PROPOSALS = 50 * PLAN_SIZE


class SearchMethod(Protocol):
    """Proposes indices of a search space, none that it has seen before."""

    def propose(self, count: int) -> list[int]:
        """Return up to ``count`` indices, at least one unless ``exhausted``; fewer if results are awaited first."""
        ...

    def reserve(self, place: int) -> None:
        """Mark an index as measured elsewhere, so that it is not proposed."""
        ...

    def learn(self, pairs: Sequence[Pair]) -> None:
        """Add results, including those of indices that this search did not propose."""
        ...

    def teach(self, others: Sequence[Pair]) -> None:
        """Add measurements of other workloads; they do not count as measured here."""
        ...

    @property
    def exhausted(self) -> bool: ...


class ModelSearch:
    """XGBTuner: the cost model's favourites, preferred indices before all others."""

    def __init__(
        self, task: Any, preferred: frozenset[int] | None, *, only: bool, loss_type: str, feature_type: str
    ) -> None:
        self._task = task
        self._preferred = preferred
        self._only = only and preferred is not None
        self._base: CostModel | None = None
        model = CostModel(task, feature_type=feature_type, loss_type=loss_type)
        self._tuner = ModelBasedTuner(task, model, optimizer(task, feature_type), PLAN_SIZE)

    @property
    def exhausted(self) -> bool:
        return not (self._left() if self._only else self._tuner.has_next())

    def propose(self, count: int) -> list[int]:
        chosen = self._ranked(self._left())[:count]
        self._tuner.visited.update(chosen)
        if self._only or len(chosen) == count:
            return chosen
        if self._base is not None and not self._tuner.train_ct and not self._tuner.trials:
            self._tuner.trials = self._ranked(self._sample())[:PLAN_SIZE]
        return chosen + [int(config.index) for config in self._tuner.next_batch(count - len(chosen))]

    def reserve(self, place: int) -> None:
        self._tuner.visited.add(place)

    def learn(self, pairs: Sequence[Pair]) -> None:
        self._tuner.update([own for own, _ in pairs], [result for _, result in pairs])

    def teach(self, others: Sequence[Pair]) -> None:
        """Train a model on other workloads to rank the first candidates, as AutoTVM's ``load_history`` does.

        With loop features it remains the base of the task's own model, its weight halved with every 64 trials.
        """
        same = [pair for pair in others if pair[0].task.name == self._task.name]
        most = FEW_TAUGHT if self._only and len(self._left()) <= SMALL_SPACE else MOST_TAUGHT
        if len(same) > most:
            same = random.sample(same, most)
        tasks = [workloads.task(workloads.key(own.task), self._task.target) for own, _ in same]
        base = self._tuner.cost_model.spawn_base_model()
        if not base.fit_log(comparable(same, tasks), PLAN_SIZE, LEAST_TAUGHT):
            return
        self._base = base
        if base.fea_type == self._tuner.cost_model.fea_type:
            self._tuner.cost_model.load_basemodel(base)

    def _left(self) -> list[int]:
        return sorted((self._preferred or frozenset()) - self._tuner.visited)

    def _ranked(self, places: list[int]) -> list[int]:
        model = self._tuner.cost_model if self._tuner.train_ct else self._base
        if model is None or len(places) < 2:
            random.shuffle(places)
            return places
        return [places[position] for position in np.argsort(-model.predict(places), kind="stable")]

    def _sample(self) -> list[int]:
        space, visited = self._task.config_space, self._tuner.visited
        left = [place for place in range(space.range_length) if place not in visited and space.is_index_valid(place)]
        return random.sample(left, min(FIRST_CHOICE, len(left)))


class ModelFreeSearch:
    """GATuner, RandomTuner or GridSearchTuner over the preferred indices and then, unless ``only``, over all."""

    def __init__(
        self,
        task: Any,
        preferred: frozenset[int] | None,
        *,
        only: bool,
        make: Callable[[Any, Mapping[int, Any]], Any],
    ) -> None:
        self._task = task
        self._make = make
        space = task.config_space
        everything = frozenset(place for place in range(space.range_length) if space.is_index_valid(place))
        self._phases = [everything] if preferred is None else [preferred] if only else [preferred, everything]
        self._results: dict[int, Pair] = {}
        self._proposed: set[int] = set()
        self._awaited: list[int] = []
        self._tuner: Any = None

    @property
    def exhausted(self) -> bool:
        return not self._phases[-1] - self._proposed

    def propose(self, count: int) -> list[int]:
        chosen: list[int] = []
        while len(chosen) < count and not self.exhausted:
            place = self._next()
            if place is None and chosen:
                break
            chosen.append(self._any() if place is None else place)
            self._proposed.add(chosen[-1])
        return chosen

    def reserve(self, place: int) -> None:
        self._proposed.add(place)

    def learn(self, pairs: Sequence[Pair]) -> None:
        for pair in pairs:
            self._results[int(pair[0].config.index)] = pair
            self._proposed.add(int(pair[0].config.index))
        self._tell()

    def teach(self, others: Sequence[Pair]) -> None:
        """Ignore other workloads: these methods have no model."""

    def _next(self) -> int | None:
        """Return an index not proposed before; None if a genetic search has converged or awaits results."""
        while not self._phases[0] - self._proposed:
            self._phases.pop(0)
            self._tuner = None
        if self._tuner is None:
            _restrict(self._task.config_space, self._phases[0])
            self._tuner = self._make(self._task, self._results)
            self._awaited = []
        for _ in range(_BARREN_PROPOSALS):
            batch = self._tuner.next_batch(1)
            if not batch:
                return None
            place = int(batch[0].index)
            self._awaited.append(place)
            if place not in self._proposed:
                return place
            # Repeated proposals are answered with the known results; only then can a new generation start.
            self._tell()
        return None

    def _any(self) -> int:
        return random.choice(sorted(self._phases[0] - self._proposed))  # noqa: S311 - a search, no secret

    def _tell(self) -> None:
        """Report results in the order of proposals, which GATuner assumes to be that of its genes."""
        while self._awaited and self._awaited[0] in self._results:
            own, result = self._results[self._awaited.pop(0)]
            self._tuner.update([own], [result])


def _restrict(space: Any, places: frozenset[int]) -> None:
    """Make ``places`` the only valid indices for every method that uses a ``ConfigSpace``.

    Works like ``multi_filter``, which accepts conditions on knob values but not on indices.
    """
    space.clear_cache()
    space._shared_filter = lambda _: True
    space._shared_filter_cache = tuple(place in places for place in range(space.range_length))
    space._length = len(places)


class _Generations(autotvm.tuner.GATuner):
    """GATuner whose first generation is at most half known good schedules, and which waits for each generation."""

    genes: list[list[int]]
    visited: set[int]

    def __init__(self, task: Any, known: Mapping[int, Pair]) -> None:
        super().__init__(task, pop_size=PLAN_SIZE)
        fit = [place for place, (_, result) in known.items() if result.error_no == 0]
        fit = [place for place in fit if self.space.is_index_valid(place)]
        fit.sort(key=lambda place: float(np.mean(known[place][1].costs)))
        sampled = [self.space.knob2point(gene) for gene in self.genes]
        first = dict.fromkeys([*fit[: self.pop_size // 2], *sampled])
        self.visited = set(list(first)[: self.pop_size])
        self.genes = [self.space.point2knob(place) for place in self.visited]

    def next_batch(self, batch_size: int) -> list[Any]:
        # The original would start the same generation again.
        return super().next_batch(min(batch_size, len(self.genes) - self.trial_pt))


MODEL_FREE: dict[str, Callable[[Any, Mapping[int, Pair]], Any]] = {
    "ga": _Generations,
    "random": lambda task, _: autotvm.tuner.RandomTuner(task),
    "gridsearch": lambda task, _: autotvm.tuner.GridSearchTuner(task),
}
SEARCHES = ("xgb", *MODEL_FREE)
