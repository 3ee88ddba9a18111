"""Round-by-round tuning of one task with Ansor.

Each round searches for a plan of a few candidates by evolution. A cost model, boosted trees that predict the throughput
of a schedule from the features of its statements, selects among them.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import recover_measure_input

from tuner.engines.relay import corrections
from tuner.engines.relay.ansor import records, workloads
from tuner.engines.relay.ansor.networks import AnsorOptions
from tuner.engines.runtime.environment import cores
from tuner.engines.runtime.rounds import NotInSpace, Trial, TrialLimit
from tuner.engines.runtime.trials import Measurement

WARM = 15
"""Number of measurements, of any tasks, above which predictions are used: two rounds. XGBModel's default of 100 is more
than a task may get here, and a model trained on one task was seen to choose well for the next from its first candidate
on."""

Pair = tuple[str, Any, Any]
"""Digest of the schedule, ``MeasureInput``, ``MeasureResult``."""


class CostModel(auto_scheduler.XGBModel):
    """Cost model shared by all tasks of a target, as in Ansor: what is learned from one convolution holds for the next.

    It is retrained when its data have grown by a fifth, always on one thread, because the data are small.
    """

    def __init__(self) -> None:
        super().__init__(verbose_eval=0, num_warmup_sample=WARM, adaptive_training=True)
        self.xgb_params["nthread"] = 1
        self._known: set[str] = set()

    def learn(self, pairs: Sequence[Pair]) -> None:
        """Add measurements, skipping those that it has already."""
        new = [pair for pair in pairs if pair[0] not in self._known]
        # Features are extracted from the subgraph, which the line alone does not contain.
        new = [pair for pair in new if workloads.is_known(str(pair[1].task.workload_key))]
        self._known.update(pair[0] for pair in new)
        self.update([measured for _, measured, _ in new], [result for _, _, result in new])


PLAN_SIZE = 8
"""Candidates per evolution, the size of one host round, so that each round uses everything learned before it."""
POPULATION_PER_CORE, MOST_POPULATION = 48, 512
"""Schedules per generation. Predicting one takes about 5 ms of a core, measuring a candidate 100 to 200 ms, so the
search for a plan takes about as long as its measurements. Ansor's 2048 took 111 s per plan on two cores."""
GENERATIONS = 3
LEAST_SAMPLED = 16
"""Minimum number of random initial schedules; if the space has fewer, sampling continues in vain until TVM gives up."""
_RANDOM_SHARE = 0.125
"""Ansor's ε: share of a plan that is chosen regardless of the model."""
_PARENTS = 0.2
"""Share of a generation that descends from the fastest schedules so far."""
_BARREN_SEARCHES = 2


class SketchSearch:
    """Proposes states of one ``SearchTask``; ``is_new(state)`` returns whether a state may be proposed."""

    def __init__(self, task: Any, model: CostModel, seed: int, is_new: Callable[[Any], bool]) -> None:
        self._is_new = is_new
        self._random = random.Random(seed)  # noqa: S311 - a search, no secret
        self._population = min(MOST_POPULATION, POPULATION_PER_CORE * max(2, cores()))
        settings = {
            "evolutionary_search_population": self._population,
            "evolutionary_search_num_iters": GENERATIONS,
            "sample_init_min_population": LEAST_SAMPLED,
        }
        self._policy = auto_scheduler.SketchPolicy(task, model, params=settings, seed=seed or 1, verbose=0)
        self._fastest: list[tuple[float, Any]] = []
        self._told = 0

    def tell(self, state: Any, seconds: float) -> None:
        """Add a valid measurement of a complete state."""
        self._told += 1
        self._fastest.append((seconds, state))
        self._fastest.sort(key=lambda pair: pair[0])
        del self._fastest[int(self._population * _PARENTS) :]

    def plan(self) -> list[Any]:
        """Return new states, best first; empty if the space seems exhausted."""
        for _ in range(_BARREN_SEARCHES):
            states = self._search()
            if states:
                return states
        return []

    def _search(self) -> list[Any]:
        sampled = list(self._policy.sample_initial_population())
        self._random.shuffle(sampled)
        parents = [state for _, state in self._fastest]
        # An untrained model predicts at random, but mutated schedules are still better than sampled ones. The policy
        # does not know what was measured, so ask for enough to cover all of it, in case the model likes those best.
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


MOST_TAUGHT = 512
"""Maximum number of measurements of other workloads used for training."""


@lru_cache(maxsize=8)
def cost_model(target: str) -> CostModel:  # noqa: ARG001 - one for each
    """Return the model shared by all tasks of a target in this process."""
    return CostModel()


@dataclass(frozen=True, kw_only=True)
class Candidate:
    state: Any
    line: str
    """Native line whose result is a placeholder."""
    digest: str


class AnsorTaskTuner:
    """Implementation of ``rounds.Search`` for Ansor."""

    def __init__(self, workload_key: str, target: Any, options: AnsorOptions, history: str | None) -> None:
        self._model = model = cost_model(str(target))
        self._key = workload_key
        self._task = workloads.search_task(workload_key, target)
        self._progress = TrialLimit(n_trial=options.n_trial, early_stopping=options.early_stopping)
        self._plan: list[Candidate] = []
        self._adopted: set[str] = set()
        self._is_barren = False
        past = list(records.read(history))
        own = [record for record in past if record.workload_key == workload_key]
        # Same seed for the same task and history, independent of earlier tuning.
        seed = int.from_bytes(hashlib.sha256(f"{workload_key}{len(own)}".encode()).digest()[:3], "big")
        np.random.seed(seed)
        self._search = SketchSearch(self._task, model, seed, self._is_new)
        if options.transfer:
            self._teach([record for record in past if record.workload_key != workload_key])
        self._resume(own)

    @property
    def exhausted(self) -> str | None:
        return "space" if self._is_barren else self._progress.ended

    @property
    def best(self) -> float:
        return self._progress.best

    def propose(self, count: int) -> list[Candidate]:
        """Return up to ``count`` candidates of the current plan, or of a new one if it is used up."""
        count = self._progress.allowed(count)
        if not self._plan and count:
            # Idle threads of TVM's pool would spin beside the search's own.
            corrections.use_threads(1)
            self._plan = [self._candidate(state) for state in self._search.plan()]
            self._is_barren = not self._plan
        chosen, self._plan = self._plan[:count], self._plan[count:]
        return chosen

    def admit(self, line: str, /) -> Candidate | None:
        """Return the candidate of a record whose steps can be replayed on the workload."""
        record = records.parse(line)
        if record is None or json.loads(record.workload_key) != json.loads(self._key):
            raise NotInSpace("not a record of the task")
        try:
            dag = self._task.compute_dag
            dag.apply_steps_from_state(record.measured.state, layout_rewrite=self._task.layout_rewrite_option)
            candidate = self._candidate(dag.infer_bound_from_state(record.measured.state))
        except Exception as error:
            # TVMError, and whatever a step with impossible arguments raises.
            raise NotInSpace(f"its steps cannot be replayed: {error}"[-500:]) from error
        if candidate.digest in self._progress.measured:
            return None
        self._adopted.add(candidate.digest)
        self._plan = [each for each in self._plan if each.digest != candidate.digest]
        return candidate

    def learn(self, candidate: Candidate, measurement: Measurement, /) -> Trial:
        finished_at = time.time()
        measured = auto_scheduler.MeasureInput(self._task, candidate.state)
        result, line = records.write(measured, measurement.latencies, measurement.error, finished_at)
        seconds = None if measurement.error else float(np.mean(measurement.latencies))
        self._count(candidate.digest, seconds, candidate.state)
        return Trial(
            measurement=measurement,
            line=line,
            digest=candidate.digest,
            finished_at=finished_at,
            # Untuned builds use TOPI schedules, which no transform steps express.
            same_layout=False,
            native=(measured, result),
        )

    def update(self, trials: Sequence[Trial]) -> None:
        self._model.learn([(trial.digest, *trial.native) for trial in trials])

    def _candidate(self, state: Any) -> Candidate:
        _, line = records.write(auto_scheduler.MeasureInput(self._task, state), (), "unknown", 0.0)
        return Candidate(state=state, line=line, digest=workloads.digest(self._key, json.loads(line)["i"][1][1]))

    def _is_new(self, state: Any) -> bool:
        digest = self._candidate(state).digest
        return digest not in self._progress.measured and digest not in self._adopted

    def _count(self, digest: str, seconds: float | None, state: Any) -> None:
        self._progress.count(digest, seconds)
        if seconds is not None:
            self._search.tell(state, seconds)

    def _resume(self, own: Sequence[records.Record]) -> None:
        for record in own:
            # A recorded state contains transform steps only; parents of an evolution need their loops too.
            state = None
            if record.seconds is not None:
                state = recover_measure_input(record.measured, rebuild_state=True).state
            self._count(record.digest, record.seconds, state)
        self._model.learn([(record.digest, record.measured, record.result) for record in own])

    def _teach(self, others: Sequence[records.Record]) -> None:
        taught = others[-MOST_TAUGHT:]
        self._model.learn([(record.digest, record.measured, record.result) for record in taught])
