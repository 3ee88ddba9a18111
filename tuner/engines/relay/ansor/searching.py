"""Ansor's search for one task, one plan of candidates after the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tvm import auto_scheduler

from tuner.engines.relay import environment
from tuner.engines.relay.ansor.cost_model import CostModel

PLAN_SIZE = 8
"""Candidates of one evolution: a round of the host's, so that each round follows all that the ones before it taught."""
POPULATION_PER_CORE, MOST_POPULATION = 48, 512
"""Schedules of a generation. Predicting one takes some 5 ms of a core, measuring a candidate 100 to 200 ms: so a plan's
search takes about as long as its measurements. Ansor's 2048 took 111 s a plan on two cores."""
GENERATIONS = 3
LEAST_SAMPLED = 16
"""Random schedules to start from; where there are fewer, sampling goes on in vain until TVM gives up."""
_RANDOM_SHARE = 0.125
"""Ansor's ε: candidates of a plan that are taken whatever the model says of them."""
_PARENTS = 0.2
"""Share of a generation that comes from the fastest schedules so far."""
_BARREN_SEARCHES = 2


class Search:
    """Proposes states of one ``SearchTask``; ``is_new`` says of a state whether it may be proposed."""

    def __init__(self, task: Any, model: CostModel, seed: int, is_new: Callable[[Any], bool]) -> None:
        self._model = model
        self._is_new = is_new
        self._random = random.Random(seed)  # noqa: S311 - a search, no secret
        self._population = min(MOST_POPULATION, POPULATION_PER_CORE * max(2, environment.cores()))
        settings = {
            "evolutionary_search_population": self._population,
            "evolutionary_search_num_iters": GENERATIONS,
            "sample_init_min_population": LEAST_SAMPLED,
        }
        self._policy = auto_scheduler.SketchPolicy(task, model, params=settings, seed=seed or 1, verbose=0)
        self._fastest: list[tuple[float, Any]] = []
        self._told = 0

    def tell(self, state: Any, seconds: float) -> None:
        """A valid measurement of a complete state."""
        self._told += 1
        self._fastest.append((seconds, state))
        self._fastest.sort(key=lambda pair: pair[0])
        del self._fastest[int(self._population * _PARENTS) :]

    def plan(self) -> list[Any]:
        """New states, best first; none when the space seems to have no more."""
        for _ in range(_BARREN_SEARCHES):
            states = self._search()
            if states:
                return states
        return []

    def _search(self) -> list[Any]:
        sampled = list(self._policy.sample_initial_population())
        self._random.shuffle(sampled)
        parents = [state for _, state in self._fastest]
        # A model that knows nothing yet predicts at random. Mutated schedules are better than sampled ones even so.
        # The policy does not know what was measured: room for all of it, should that be what the model likes best.
        wanted = 2 * PLAN_SIZE + self._told
        evolved = list(self._policy.evolutionary_search(sampled + parents, wanted))
        taken: set[str] = set()
        by_chance = int(PLAN_SIZE * _RANDOM_SHARE)
        chosen = self._new(evolved, PLAN_SIZE - by_chance, taken)
        return chosen + self._new(sampled, PLAN_SIZE - len(chosen), taken)

    def _new(self, states: list[Any], count: int, taken: set[str]) -> list[Any]:
        chosen: list[Any] = []
        for state in states:
            if len(chosen) == count:
                break
            if self._is_new(state) and str(state) not in taken:
                taken.add(str(state))
                chosen.append(state)
        return chosen
