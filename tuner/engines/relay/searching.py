"""AutoTVM's search methods for one task, fed with measurements round by round."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from tvm import autotvm
from tvm.autotvm.tuner.model_based_tuner import ModelBasedTuner

from tuner.engines.relay import cost_model, workloads

PLAN_SIZE = 16
"""Trials between two fits of the cost model, and a generation; XGBTuner's 64 and GATuner's 100 would leave a small
budget to chance."""
MOST_TAUGHT = 192
"""Records of other workloads that a cost model is taught with: a second of feature extraction, for every task."""
SMALL_SPACE, FEW_TAUGHT = 64, 96
"""So few schedules are soon measured, all of them: fewer records are worth the while of ranking them."""
LEAST_TAUGHT = 32
"""Fewer teach nothing worth following; AutoTVM's own limit, 500, is more than a whole job of ours may have."""
FIRST_CHOICE = 128
"""Random schedules of which the first plan is made, where there are more than can be predicted in a second."""
_BARREN_PROPOSALS = 50 * PLAN_SIZE

Pair = Any
"""``(MeasureInput, MeasureResult)``"""


class Search(Protocol):
    """Proposes places in a search space, none that it was told of before."""

    def propose(self, count: int) -> list[int]:
        """Up to ``count`` places, at least one unless ``exhausted``; fewer when results are awaited first."""
        ...

    def reserve(self, place: int) -> None:
        """Somebody else measures it: do not propose it."""
        ...

    def learn(self, pairs: Sequence[Pair]) -> None:
        """What places came to; also of places that this search did not propose."""
        ...

    def teach(self, others: Sequence[Pair]) -> None:
        """Measurements of other workloads; they count as none of this one."""
        ...

    @property
    def exhausted(self) -> bool: ...


class ModelSearch:
    """XGBTuner: the cost model's favourites, those of the preferred places before any others."""

    def __init__(
        self, task: Any, preferred: frozenset[int] | None, *, only: bool, loss_type: str, feature_type: str
    ) -> None:
        self._task = task
        self._preferred = preferred
        self._only = only and preferred is not None
        self._base: cost_model.CostModel | None = None
        model = cost_model.CostModel(task, feature_type=feature_type, loss_type=loss_type)
        self._tuner = ModelBasedTuner(task, model, cost_model.optimizer(task, feature_type), PLAN_SIZE)

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
        """As AutoTVM's ``load_history``: a model of the others ranks the first candidates.

        With loop features it then stays below the task's own model, its weight halved with every 64 trials.
        """
        same = [pair for pair in others if pair[0].task.name == self._task.name]
        most = FEW_TAUGHT if self._only and len(self._left()) <= SMALL_SPACE else MOST_TAUGHT
        if len(same) > most:
            same = random.sample(same, most)
        tasks = [workloads.task(workloads.key(own.task), self._task.target) for own, _ in same]
        base = self._tuner.cost_model.spawn_base_model()
        if not base.fit_log(cost_model.comparable(same, tasks), PLAN_SIZE, LEAST_TAUGHT):
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
    """GATuner, RandomTuner or GridSearchTuner: over the preferred places, then, unless ``only``, over all."""

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
        """Nothing: these methods have no model."""

    def _next(self) -> int | None:
        """A place that was never proposed; None from a genetic search that has converged or awaits results."""
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
            # What it proposes again it learns again; only then can a new generation come.
            self._tell()
        return None

    def _any(self) -> int:
        return random.choice(sorted(self._phases[0] - self._proposed))  # noqa: S311 - a search, no secret

    def _tell(self) -> None:
        """Hand over results in the order of proposals, which GATuner takes for that of its genes."""
        while self._awaited and self._awaited[0] in self._results:
            own, result = self._results[self._awaited.pop(0)]
            self._tuner.update([own], [result])


def _restrict(space: Any, places: frozenset[int]) -> None:
    """Make ``places`` the only valid ones, for every method that asks a ``ConfigSpace``.

    As ``multi_filter`` does, which takes conditions on values of knobs, not on places.
    """
    space.clear_cache()
    space._shared_filter = lambda _: True
    space._shared_filter_cache = tuple(place in places for place in range(space.range_length))
    space._length = len(places)


class _Generations(autotvm.tuner.GATuner):
    """GATuner that starts from what is known, half of its first generation at most, and waits for each generation."""

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
        # The original would begin the same generation again.
        return super().next_batch(min(batch_size, len(self.genes) - self.trial_pt))


MODEL_FREE: dict[str, Callable[[Any, Mapping[int, Pair]], Any]] = {
    "ga": _Generations,
    "random": lambda task, _: autotvm.tuner.RandomTuner(task),
    "gridsearch": lambda task, _: autotvm.tuner.GridSearchTuner(task),
}
SEARCHES = ("xgb", *MODEL_FREE)
