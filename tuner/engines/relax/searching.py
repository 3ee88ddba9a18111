"""Search for one tuning task: MetaSchedule's evolutionary search, run round by round on external measurements."""

from __future__ import annotations

import hashlib
import logging
import math
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from tvm.s_tir import meta_schedule
from tvm.s_tir.meta_schedule.cost_model import xgb_model
from tvm.s_tir.meta_schedule.utils import shash2hex

from tuner.engines.protocol.messages import Json
from tuner.engines.relax import records, schedules, targets
from tuner.engines.relax.graph import attention, chains, filtering
from tuner.engines.relax.machines import Machine
from tuner.engines.runtime.environment import cores
from tuner.engines.runtime.rounds import NotInSpace, Trial, TrialLimit
from tuner.engines.runtime.trials import CandidateBuild, Measurement

BATCH = 16
"""Candidates per generation: TVM's 64 would leave a small budget to chance."""
_POPULATION_PER_CORE, _MOST_POPULATION = 12, 128
_MUTATIONS = 1
"""Rounds of mutation per generation. Replaying and predicting one schedule takes about 20 ms of a core, building and
measuring a candidate about 200 ms, so the search takes less time than its measurements. TVM's 512, mutated four times,
take 10 to 30 s per generation on two cores."""
_WARM_UP = 16
_BARREN = 3
"""Consecutive generations without a new candidate after which the space counts as exhausted."""
_NEVER = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Candidate:
    native: Any
    """``MeasureCandidate``."""
    line: str
    """Record line without a measurement."""
    is_default: bool


def start(params: Json) -> TaskSearch:
    """Return the search of a ``tune`` request."""
    target = targets.resolve(params["target"], params["threads"])
    work = records.read_definition(params.get("task"), params["workload_key"])
    options = params.get("options") or {}
    limit = TrialLimit(n_trial=options.get("n_trial"), early_stopping=options.get("early_stopping"))
    model = _cost_model(params["target"], params["threads"])
    return TaskSearch(work, target, model, limit, records.load(params.get("history")))


def build(params: Json, candidate: Candidate) -> CandidateBuild:
    """Return the build of a candidate that this search proposed."""
    return CandidateBuild(
        function="build", arguments=(params["task"], candidate.line, params["target"], params["threads"])
    )


class CostModel:
    """The model shared by the tasks of a target, so that each learns from the others."""

    def __init__(self) -> None:
        config = xgb_model.XGBConfig(nthread=1)
        self.native = meta_schedule.cost_model.XGBModel(config=config, num_warmup_samples=_WARM_UP)
        self._known: set[str] = set()

    def learn(self, context: Any, measured: Iterable[tuple[str, Any, Any]]) -> None:
        """Add digests, candidates and results, skipping those that it has already."""
        new = {digest: pair for digest, *pair in measured if digest not in self._known}
        self._known |= new.keys()
        if new:
            natives, results = map(list, zip(*new.values(), strict=True))
            self.native.update(context, natives, results)


@cache
def _cost_model(target: str, threads: int) -> CostModel:  # noqa: ARG001 - the key
    return CostModel()


class TaskSearch:
    """Search for one workload. ``history`` has records of any workload, failed ones too; none is proposed again."""

    def __init__(
        self, work: Any, target: Any, model: CostModel, limit: TrialLimit, history: Sequence[records.Record]
    ) -> None:
        self._work, self._target, self._model = work, target, model
        self._key = records.key_of(work)
        past = [record for record in history if record.workload_key == self._key]
        # Same seed for the same task and history, independent of earlier tuning.
        seed = int.from_bytes(hashlib.sha256(f"{self._key}{len(past)}".encode()).digest()[:4], "big") % (1 << 30) + 1
        random.seed(seed)
        np.random.seed(seed)
        targets.load_intrinsics(target)
        self._database = meta_schedule.database.MemoryDatabase()
        self._context = self._start(seed)
        self._seen: set[str] = set()
        self._pending: list[Candidate] = []
        self._untaught: list[tuple[str, Any, Any]] = []
        self._ended = False
        self._progress = limit
        self._offer_default()
        self._learn_past(past)

    @property
    def exhausted(self) -> str | None:
        """Reason why no further round makes sense, or None."""
        return self._progress.ended or ("space" if self._ended and not self._pending else None)

    @property
    def best(self) -> float:
        return self._progress.best

    def propose(self, count: int) -> list[Candidate]:
        """Return up to ``count`` candidates that have not been measured, the untuned build's schedule first."""
        count = self._progress.allowed(count)
        barren = 0
        while len(self._pending) < count and not self._ended:
            barren = 0 if self._generate() else barren + 1
            self._ended = self._ended or barren >= _BARREN
        chosen, self._pending = self._pending[:count], self._pending[count:]
        return chosen

    def admit(self, line: str) -> Candidate | None:
        """Return the candidate of a record whose trace can be applied to the workload."""
        record = records.parse(line)
        if record is None or record.workload_key != self._key:
            raise NotInSpace("not a record of the task")
        try:
            native = _candidate(records.replay(record, self._work))
        except Exception as error:
            # A trace may fail in any primitive.
            raise NotInSpace(f"its trace cannot be applied: {error}"[-500:]) from error
        identity = shash2hex(native.sch.mod)
        for place, pending in enumerate(self._pending):
            if shash2hex(pending.native.sch.mod) == identity:
                return self._pending.pop(place)
        if identity in self._seen:
            return None
        self._seen.add(identity)
        return Candidate(native=native, line=records.encode(self._work, native, self._target, ()), is_default=False)

    def learn(self, candidate: Candidate, measurement: Measurement) -> Trial:
        line = records.encode(self._work, candidate.native, self._target, measurement.latencies)
        self._count(records.parse_own(line).seconds)
        return Trial(
            measurement=measurement,
            line=line,
            digest=records.digest(line),
            finished_at=time.time(),
            is_default=candidate.is_default,
            native=candidate.native,
        )

    def update(self, trials: Sequence[Trial]) -> None:
        natives = [trial.native for trial in trials]
        results = [_result(trial.measurement.latencies, trial.measurement.message) for trial in trials]
        # The model is queried once per generation; training it more often would take as long as measuring.
        self._untaught += zip((trial.digest for trial in trials), natives, results, strict=True)
        if natives:
            self._context.notify_runner_results(natives, results)
        for trial in trials:
            if not trial.is_default:
                self._commit(records.parse_own(trial.line))

    def _start(self, seed: int) -> Any:
        strategy = meta_schedule.search_strategy.EvolutionarySearch(
            population_size=min(_MOST_POPULATION, _POPULATION_PER_CORE * max(2, cores())),
            init_min_unmeasured=BATCH,
            genetic_num_iters=_MUTATIONS,
        )
        machine = Machine.of(self._target)
        own = next(filter(None, (each.ways(self._work.mod, machine) for each in (filtering, chains, attention))), None)
        context = meta_schedule.TuneContext(
            mod=self._work.mod,
            target=self._target,
            space_generator=own or "post-order-apply",
            search_strategy=strategy,
            num_threads=cores(),
            rand_state=seed,
        )
        context.pre_tuning(_NEVER, BATCH, None, self._database, self._model.native)
        return context

    def _offer_default(self) -> None:
        if targets.is_gpu(self._target):
            return
        with self._target:
            schedule = schedules.default(self._work.mod, self._target)
        if schedule is not None:
            self._offer(_candidate(schedule), is_default=True)

    def _generate(self) -> bool:
        """Return whether the next generation contains anything new."""
        self._model.learn(self._context, self._untaught)
        self._untaught.clear()
        found = self._context.generate_measure_candidates()
        if found is None:
            self._ended = True
            return False
        return sum(self._offer(native, is_default=False) for native in found) > 0

    def _offer(self, native: Any, *, is_default: bool) -> bool:
        identity = shash2hex(native.sch.mod)
        if identity in self._seen:
            return False
        self._seen.add(identity)
        line = records.encode(self._work, native, self._target, ())
        self._pending.append(Candidate(native=native, line=line, is_default=is_default))
        return True

    def _learn_past(self, past: Sequence[records.Record]) -> None:
        measured = []
        for record in past:
            self._count(record.seconds)
            native = self._replayed(record)
            if native is None:
                continue
            identity = shash2hex(native.sch.mod)
            self._seen.add(identity)
            # Candidates measured before are not proposed now, not even the default.
            self._pending = [each for each in self._pending if shash2hex(each.native.sch.mod) != identity]
            result = _result(record.body[1] if record.seconds < math.inf else (), "failed")
            measured.append((records.digest(record.line), native, result))
            self._commit(record)
        self._model.learn(self._context, measured)

    def _replayed(self, record: records.Record) -> Any | None:
        try:
            return _candidate(records.replay(record, self._work))
        except Exception as error:  # noqa: BLE001 - a failed trial may be one that cannot be replayed
            logging.getLogger(__name__).warning("a record of %s cannot be replayed: %s", self._key, error)
            return None

    def _commit(self, record: records.Record) -> None:
        """Add a successful record with decisions that can be mutated to the search's database."""
        if record.seconds < math.inf and any(name.startswith("Sample") for name, *_ in record.body[0][0]):
            self._database.commit_tuning_record(records.native(record, self._database.commit_workload(self._work.mod)))

    def _count(self, seconds: float) -> None:
        self._progress.count(len(self._progress.measured), seconds)


def _candidate(schedule: Any) -> Any:
    infos = meta_schedule.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    return meta_schedule.MeasureCandidate(schedule, infos)


def _result(latencies: Sequence[float], message: str | None) -> Any:
    runs = [float(each) for each in latencies] or None
    return meta_schedule.runner.RunnerResult(runs, None if runs else message or "failed")
