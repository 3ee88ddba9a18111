"""Round-by-round tuning of one task with AutoTVM."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import autotvm
from tvm.autotvm.measure import MeasureErrorNo, MeasureInput, MeasureResult

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import compiling, defaults, searching, workloads
from tuner.engines.relay.templates import dispatching
from tuner.engines.runtime import faults
from tuner.engines.runtime.rounds import NotInSpace, Trial, TrialLimit
from tuner.engines.runtime.trials import Measurement

_CHOICES = {
    "search": searching.SEARCHES,
    "loss_type": searching.LOSSES,
    "feature_type": searching.FEATURES,
}
_ERROR_NUMBERS = {
    "invalid_schedule": MeasureErrorNo.INSTANTIATION_ERROR,
    "build_error": MeasureErrorNo.COMPILE_HOST,
    "build_timeout": MeasureErrorNo.BUILD_TIMEOUT,
    "run_error": MeasureErrorNo.RUNTIME_DEVICE,
    "run_timeout": MeasureErrorNo.RUN_TIMEOUT,
}


@dataclass(frozen=True, kw_only=True)
class AutoTvmOptions:
    """The ``domain.jobs.TunerOptions`` that apply to AutoTVM."""

    search: str = "xgb"
    early_stopping: int | None = None
    n_trial: int | None = None
    loss_type: str = "rank-binary"
    feature_type: str = "knob"
    keep_layout: bool = True
    """Whether to search only layouts that neighbours can agree on (``defaults.consistent``); else those come first."""
    transfer: bool = True
    """Whether to train the cost model on the history of other workloads."""

    @classmethod
    def of(cls, options: Json) -> AutoTvmOptions:
        """Read the options of a request. Raises EngineFailure ``invalid_option``."""
        chosen = cls(**{name: value for name, value in options.items() if name in cls.__dataclass_fields__})
        for name, known in _CHOICES.items():
            faults.require_known(name, getattr(chosen, name), known)
        return chosen


class AutoTvmTaskTuner:
    """Implementation of ``rounds.Search`` for AutoTVM."""

    def __init__(self, workload_key: str, target: Any, options: AutoTvmOptions, history: str | None) -> None:
        self.task = workloads.task(workload_key, target)
        self._default = defaults.index(self.task)
        self._same_layout = defaults.same_layout(self.task)
        self._progress = TrialLimit(n_trial=options.n_trial, early_stopping=options.early_stopping)
        records = workloads.sound(compiling.load_records(history))
        past = self._placed(pair for pair in records if workloads.key(pair[0].task) == workload_key)
        # Same seed for the same task and history, independent of earlier tuning.
        seed = int.from_bytes(hashlib.sha256(f"{workload_key}{len(past)}".encode()).digest()[:4], "big")
        random.seed(seed)
        np.random.seed(seed)
        self._search = _search(self.task, defaults.consistent(self.task), options)
        if options.transfer:
            self._search.teach([pair for pair in records if workloads.key(pair[0].task) != workload_key])
        for pair in past:
            self._count(pair)
        self._fit(past)

    @property
    def exhausted(self) -> str | None:
        """Reason why no further round makes sense, or None."""
        return "space" if self._search.exhausted else self._progress.ended

    @property
    def best(self) -> float:
        return self._progress.best

    def propose(self, count: int) -> list[Any]:
        """Return up to ``count`` configurations that have not been measured.

        The untuned default comes first, so that gains are known; then layouts that neighbours can agree on; then,
        unless ``keep_layout``, the search's choice from the whole space.
        """
        count = self._progress.allowed(count)
        chosen: list[int] = []
        if count and self._default is not None and self._default not in self._progress.measured:
            chosen.append(self._default)
            self._search.reserve(self._default)
        chosen += self._search.propose(count - len(chosen))
        return [self.task.config_space.get(place) for place in chosen]

    def admit(self, line: str) -> Any | None:
        """Return the configuration of a record with any sound layout."""
        try:
            recorded, _ = autotvm.record.decode(line)
            place = workloads.index_of(self._whole_space, recorded.config)
        except Exception as error:
            # TVM reads anything of the right shape, and fails on what is in it.
            raise NotInSpace(f"not a record of AutoTVM: {error}"[:500]) from error
        if place is None or workloads.key(recorded.task) != workloads.key(self.task):
            raise NotInSpace("its knobs are not in the task's search space")
        if place in self._progress.measured or place == self._default:
            return None
        self._search.reserve(place)
        return self._whole_space.get(place)

    def _placed(self, pairs: Iterable[Any]) -> list[Any]:
        """Return records with the places that their knobs have in this release's space, which may have had others."""
        placed = [(workloads.index_of(self._whole_space, own.config), result) for own, result in pairs]
        return [
            (MeasureInput(self.task.target, self.task, self._whole_space.get(place)), result)
            for place, result in placed
            if place is not None
        ]

    @cached_property
    def _whole_space(self) -> Any:
        """The search space of a task of its own: search methods restrict that of ``task`` to some layouts."""
        return workloads.create(self.task.name, self.task.args, self.task.target).config_space

    def learn(self, config: Any, measurement: Measurement) -> Trial:
        finished_at = time.time()
        number = _ERROR_NUMBERS.get(measurement.error or "", MeasureErrorNo.UNKNOWN_ERROR)
        failed = measurement.error is not None
        costs = (measurement.message or "",) if failed else measurement.latencies
        result = MeasureResult(costs, int(number if failed else MeasureErrorNo.NO_ERROR), 0.0, finished_at)
        pair = (MeasureInput(self.task.target, self.task, config), result)
        self._count(pair)
        return Trial(
            is_default=config.index == self._default and dispatching.usual(self.task.name) == self.task.name,
            same_layout=self._same_layout is None or config.index in self._same_layout,
            measurement=measurement,
            line=autotvm.record.encode(*pair),
            digest=_digest(self.task, config),
            finished_at=finished_at,
        )

    def update(self, trials: Sequence[Trial]) -> None:
        self._fit([autotvm.record.decode(trial.line) for trial in trials])

    def _count(self, pair: Any) -> None:
        own, result = pair
        self._progress.count(int(own.config.index), float(np.mean(result.costs)) if result.error_no == 0 else None)

    def _fit(self, pairs: Sequence[Any]) -> None:
        # A decoded line's task has no number of operations; ours has.
        own = [(MeasureInput(self.task.target, self.task, line.config), result) for line, result in pairs]
        self._search.learn(own)


def _search(task: Any, consistent: frozenset[int] | None, options: AutoTvmOptions) -> searching.SearchMethod:
    if options.search == "xgb":
        return searching.ModelSearch(
            task,
            consistent,
            only=options.keep_layout,
            loss_type=options.loss_type,
            feature_type=options.feature_type,
        )
    make = searching.MODEL_FREE[options.search]
    return searching.ModelFreeSearch(task, consistent, only=options.keep_layout, make=make)


def _digest(task: Any, config: Any) -> str:
    schedule = [task.name, task.args, config.to_json_dict()["entity"]]
    return hashlib.sha256(json.dumps(schedule, separators=(",", ":")).encode()).hexdigest()
