"""Tuning one task with Ansor, round by round."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import recover_measure_input

from tuner.engines.protocol.trials import Measurement
from tuner.engines.relay import speedups
from tuner.engines.relay.ansor import records, searching, workloads
from tuner.engines.relay.ansor.cost_model import CostModel
from tuner.engines.relay.ansor.options import Options

MOST_TAUGHT = 512
"""Measurements of other workloads that a history may teach."""


@lru_cache(maxsize=8)
def cost_model(target: str) -> CostModel:  # noqa: ARG001 - one for each
    """The model that all tasks of a target share in this process."""
    return CostModel()


@dataclass(frozen=True, kw_only=True)
class Candidate:
    state: Any
    line: str
    """A native line whose result means nothing yet."""
    digest: str


@dataclass(frozen=True, kw_only=True)
class Trial:
    """``tuner.engines.protocol.rounds.Trial``"""

    measurement: Measurement
    line: str
    digest: str
    finished_at: float
    result: Any
    """``MeasureResult``"""
    measured: Any
    """``MeasureInput``"""
    is_default: bool = False
    """What an untuned build does comes from TOPI; no transform steps write it."""
    same_layout: bool = False


class TaskTuner:
    """``tuners.TaskTuner``"""

    def __init__(self, workload_key: str, target: Any, options: Options, history: str | None) -> None:
        self._options = options
        self._model = model = cost_model(str(target))
        self._key = workload_key
        self._task = workloads.search_task(workload_key, target)
        self._measured: set[str] = set()
        self._plan: list[Candidate] = []
        self._best, self._best_at = float("inf"), 0
        self._is_barren = False
        past = list(records.read(history))
        own = [record for record in past if record.workload_key == workload_key]
        # The same search for the same task and past, whatever was tuned before it.
        seed = int.from_bytes(hashlib.sha256(f"{workload_key}{len(own)}".encode()).digest()[:3], "big")
        np.random.seed(seed)
        self._search = searching.Search(self._task, model, seed, self._is_new)
        if options.transfer:
            self._teach([record for record in past if record.workload_key != workload_key])
        self._resume(own)

    @property
    def exhausted(self) -> str | None:
        if self._is_barren:
            return "space"
        done = len(self._measured)
        if self._options.n_trial is not None and done >= self._options.n_trial:
            return "n_trial"
        if self._options.early_stopping is not None and done - self._best_at >= self._options.early_stopping:
            return "early_stopping"
        return None

    @property
    def best(self) -> float:
        return self._best

    def propose(self, count: int) -> list[Candidate]:
        """Of the plan at hand, or of a new one where that is used up, up to ``count``."""
        if self._options.n_trial is not None:
            count = max(0, min(count, self._options.n_trial - len(self._measured)))
        if not self._plan and count:
            # Idle threads of TVM's pool would spin beside the search's own.
            speedups.use_threads(1)
            self._plan = [self._candidate(state) for state in self._search.plan()]
            self._is_barren = not self._plan
        chosen, self._plan = self._plan[:count], self._plan[count:]
        return chosen

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
            result=result,
            measured=measured,
        )

    def update(self, trials: Sequence[Trial]) -> None:
        self._model.learn([(trial.digest, trial.measured, trial.result) for trial in trials])

    def _candidate(self, state: Any) -> Candidate:
        _, line = records.write(auto_scheduler.MeasureInput(self._task, state), (), "unknown", 0.0)
        return Candidate(state=state, line=line, digest=self._digest(line))

    def _digest(self, line: str) -> str:
        return workloads.digest(self._key, json.loads(line)["i"][1][1])

    def _is_new(self, state: Any) -> bool:
        return self._candidate(state).digest not in self._measured

    def _count(self, digest: str, seconds: float | None, state: Any) -> None:
        self._measured.add(digest)
        if seconds is None:
            return
        if seconds < self._best:
            self._best, self._best_at = seconds, len(self._measured)
        self._search.tell(state, seconds)

    def _resume(self, own: Sequence[records.Record]) -> None:
        for record in own:
            # A state as it is read has its transform steps alone; parents of an evolution need their loops too.
            state = None
            if record.seconds is not None:
                state = recover_measure_input(record.measured, rebuild_state=True).state
            self._count(record.digest, record.seconds, state)
        self._model.learn([(record.digest, record.measured, record.result) for record in own])

    def _teach(self, others: Sequence[records.Record]) -> None:
        taught = others[-MOST_TAUGHT:]
        self._model.learn([(record.digest, record.measured, record.result) for record in taught])
