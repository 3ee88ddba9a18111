"""The search for one tuning task, round by round."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import autotvm
from tvm.autotvm.measure import MeasureErrorNo, MeasureInput, MeasureResult
from tvm.autotvm.tuner.model_based_tuner import ModelBasedTuner

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import compiling, cost_model, defaults, measuring, workloads

PLAN_SIZE = 16
"""Trials between two fits of the cost model; XGBTuner's 64 would leave a small budget to chance."""
LOSSES = ("rank", "rank-binary", "reg")
FEATURES = ("knob", "itervar", "curve")

_ERROR_NUMBERS = {
    "invalid_schedule": MeasureErrorNo.INSTANTIATION_ERROR,
    "build_error": MeasureErrorNo.COMPILE_HOST,
    "build_timeout": MeasureErrorNo.BUILD_TIMEOUT,
    "run_error": MeasureErrorNo.RUNTIME_DEVICE,
    "run_timeout": MeasureErrorNo.RUN_TIMEOUT,
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """``domain.jobs.TunerOptions``"""

    early_stopping: int | None = None
    n_trial: int | None = None
    loss_type: str = "rank-binary"
    feature_type: str = "knob"
    keep_layout: bool = True
    """Search only what keeps the untuned build's memory layout; else that first, then the whole space."""

    @classmethod
    def of(cls, options: Json) -> Options:
        """Raises EngineFailure ``invalid_option``."""
        chosen = cls(**{name: value for name, value in options.items() if name in cls.__dataclass_fields__})
        for value, known in ((chosen.loss_type, LOSSES), (chosen.feature_type, FEATURES)):
            if value not in known:
                raise EngineFailure("invalid_option", f"{value!r} is none of {', '.join(known)}")
        return chosen


@dataclass(frozen=True, kw_only=True)
class Trial:
    index: int
    is_default: bool
    same_layout: bool
    """Whether a network built with it needs no other layout transforms than an untuned build."""
    measurement: measuring.Measurement
    line: str
    """The native AutoTVM record."""
    digest: str
    """sha256 of task and schedule, without target and measurement."""
    finished_at: float
    """Unix seconds."""


class TaskTuner:
    """An ``XGBTuner`` for one workload that is fed by us and lives on between rounds."""

    def __init__(self, workload_key: str, target: Any, options: Options, history: str | None) -> None:
        self.options = options
        self.task = workloads.task(workload_key, target)
        self._default = defaults.index(self.task)
        self._same_layout = defaults.same_layout(self.task, self._default)
        self._done = 0
        self._best = float("inf")
        self._best_at = 0
        past = [pair for pair in compiling.load_records(history) if workloads.key(pair[0].task) == workload_key]
        # The same search for the same task and past, whatever was tuned before it.
        seed = int.from_bytes(hashlib.sha256(f"{workload_key}{len(past)}".encode()).digest()[:4], "big")
        random.seed(seed)
        np.random.seed(seed)
        self._tuner = _xgb_tuner(self.task, options)
        self._learn(past)

    @property
    def exhausted(self) -> str | None:
        """Why no further round makes sense, or None."""
        if not (self._left_in_layout() if self._held else self._tuner.has_next()):
            return "space"
        if self.options.n_trial is not None and self._done >= self.options.n_trial:
            return "n_trial"
        if self.options.early_stopping is not None and self._done - self._best_at >= self.options.early_stopping:
            return "early_stopping"
        return None

    def propose(self, count: int) -> list[Any]:
        """Up to ``count`` configurations that were never measured.

        The untuned default comes first of all, so that gains are known; then what keeps the untuned build's memory
        layout; then, unless the layout is held, XGBTuner's choice from the whole space.
        """
        if self.options.n_trial is not None:
            count = max(0, min(count, self.options.n_trial - self._done))
        chosen = self._in_layout(count)
        self._tuner.visited.update(chosen)
        configs = [self.task.config_space.get(place) for place in chosen]
        return configs if self._held else configs + self._tuner.next_batch(count - len(chosen))

    @property
    def _held(self) -> bool:
        return self.options.keep_layout and self._same_layout is not None

    def _left_in_layout(self) -> list[int]:
        return sorted((self._same_layout or frozenset()) - self._tuner.visited)

    def _in_layout(self, count: int) -> list[int]:
        left = self._left_in_layout()
        if self._tuner.train_ct and left:
            predicted = self._tuner.cost_model.predict(left)
            left = [left[place] for place in np.argsort(-predicted, kind="stable")]
        else:
            random.shuffle(left)
        if self._default is not None and self._default not in self._tuner.visited:
            left = [self._default, *(place for place in left if place != self._default)]
        return left[:count]

    def learn(self, config: Any, measurement: measuring.Measurement) -> Trial:
        """Turn one measurement into a trial; ``update`` then teaches the cost model a batch of them."""
        finished_at = time.time()
        number = _ERROR_NUMBERS.get(measurement.error or "", MeasureErrorNo.UNKNOWN_ERROR)
        failed = measurement.error is not None
        costs = (measurement.message or "",) if failed else measurement.latencies
        result = MeasureResult(costs, int(number if failed else MeasureErrorNo.NO_ERROR), 0.0, finished_at)
        pair = (MeasureInput(self.task.target, self.task, config), result)
        self._count(pair[1])
        return Trial(
            index=int(config.index),
            is_default=config.index == self._default,
            same_layout=self._same_layout is None or config.index in self._same_layout,
            measurement=measurement,
            line=autotvm.record.encode(*pair),
            digest=_digest(self.task, config),
            finished_at=finished_at,
        )

    def update(self, trials: Sequence[Trial]) -> None:
        pairs = [autotvm.record.decode(trial.line) for trial in trials]
        self._fit(pairs)

    def _learn(self, past: Sequence[Any]) -> None:
        for _, result in past:
            self._count(result)
        self._fit(past)

    def _count(self, result: Any) -> None:
        self._done += 1
        if result.error_no == 0 and float(np.mean(result.costs)) < self._best:
            self._best, self._best_at = float(np.mean(result.costs)), self._done

    def _fit(self, pairs: Sequence[Any]) -> None:
        inputs = []
        for own, _ in pairs:
            # A decoded line knows its schedule by number; our task knows how many operations that is worth.
            inputs.append(MeasureInput(self.task.target, self.task, own.config))
        self._tuner.update(inputs, [result for _, result in pairs])


def _xgb_tuner(task: Any, options: Options) -> Any:
    # XGBoost 2 and newer refuse "rank" for the real-valued labels that AutoTVM gives it.
    loss = "rank-binary" if options.loss_type == "rank" else options.loss_type
    model = cost_model.CostModel(task, feature_type=options.feature_type, loss_type=loss)
    return ModelBasedTuner(task, model, cost_model.optimizer(task, options.feature_type), PLAN_SIZE)


def _digest(task: Any, config: Any) -> str:
    schedule = [task.name, task.args, config.to_json_dict()["entity"]]
    return hashlib.sha256(json.dumps(schedule, separators=(",", ":")).encode()).hexdigest()
