"""Tuning rounds: a number of trials of one task, each reported as soon as it is finished."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tuner.engines.protocol.messages import Json
from tuner.engines.runtime.measuring import Measurer
from tuner.engines.runtime.trials import CandidateBuild, MeasureConditions, Measurement


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A candidate and the outcome of its measurement."""

    measurement: Measurement
    line: str
    """Record in the tuner's native format."""
    digest: str
    """sha256 of task and schedule, without target and measurement."""
    finished_at: float
    """Unix time in seconds."""
    is_default: bool = False
    """Whether the schedule is the one of an untuned build."""
    same_layout: bool = True
    """Whether a network built with it needs no other layout transforms than an untuned build."""
    native: Any = None
    """Tuner-specific object from which its search learns."""


class NotInSpace(Exception):
    """A schedule of another search is not in the task's search space; the text says why."""


class Search(Protocol):
    """Search for the best schedule of one workload; it persists between rounds."""

    @property
    def exhausted(self) -> str | None:
        """Reason why no further round makes sense, or None."""
        ...

    @property
    def best(self) -> float:
        """Mean seconds of the fastest candidate so far; infinite if there is none."""
        ...

    def propose(self, count: int) -> Sequence[Any]:
        """Return up to ``count`` candidates that have not been measured."""
        ...

    def admit(self, line: str, /) -> Any | None:
        """Return the candidate of a native line from elsewhere, which ``propose`` then omits; None if this search has
        measured it or measures it anyway. Its latencies are ignored. Raises NotInSpace.
        """
        ...

    def learn(self, candidate: Any, measurement: Measurement, /) -> Trial:
        """Return the trial of a measured candidate; ``update`` then passes a batch of them to the search."""
        ...

    def update(self, trials: Sequence[Trial], /) -> None:
        """Update the search with a batch of trials."""
        ...


class TrialLimit:
    """Measured candidates and stopping rules, common to all searches."""

    def __init__(self, *, n_trial: int | None, early_stopping: int | None) -> None:
        self._n_trial, self._early_stopping = n_trial, early_stopping
        self.measured: set[Hashable] = set()
        """Keys of all measured candidates, including failed ones."""
        self.best = math.inf
        """Mean seconds of the fastest candidate."""
        self._best_at = 0

    def count(self, candidate: Hashable, seconds: float | None) -> None:
        """Count a measured candidate; ``seconds`` is None or infinite for a failure."""
        self.measured.add(candidate)
        if seconds is not None and seconds < self.best:
            self.best, self._best_at = seconds, len(self.measured)

    def allowed(self, count: int) -> int:
        """Limit ``count`` to the trials left before ``n_trial``."""
        return count if self._n_trial is None else max(0, min(count, self._n_trial - len(self.measured)))

    @property
    def ended(self) -> str | None:
        """``n_trial`` or ``early_stopping`` if that limit was reached, else None."""
        if self._n_trial is not None and len(self.measured) >= self._n_trial:
            return "n_trial"
        if self._early_stopping is not None and len(self.measured) - self._best_at >= self._early_stopping:
            return "early_stopping"
        return None


def tune(
    params: Json,
    search: Search,
    measurer: Measurer,
    conditions: MeasureConditions,
    *,
    build: Callable[[Any], CandidateBuild],
    emit: Callable[[str, Json], None],
) -> Json:
    """Measure up to ``params["trials"]`` new candidates; ``build`` returns the build of one.

    Up to ``params["adopted"]`` schedules of the file ``params["candidates"]`` come right after the search's first
    proposal, which may be the untuned build's schedule. Those that are not in the search space cost no trial.

    A trial is appended to the spool before it is emitted, so trials that the host has not stored survive its crash
    on disk. Time in a tracker's queue is reported separately and does not count against ``params["seconds"]``.
    """
    started, queued = time.monotonic(), measurer.queue_seconds
    clock = _Clock(measurer.spent)
    limit = params.get("seconds")
    scratch = Path(params["spool"]).parent
    done, reason = 0, "trials"
    with clock.step("search"):
        adopted = _adopted(params, search, emit)
    while done < params["trials"] and search.exhausted is None:
        if limit is not None and time.monotonic() - started - (measurer.queue_seconds - queued) >= limit:
            reason = "seconds"
            break
        emit("progress", {"step": "search"})
        with clock.step("search"):
            count = min(max(measurer.batch(conditions), 1 + len(adopted)), params["trials"] - done)
            own = [(None, each) for each in search.propose(count - len(adopted))]
            batch, adopted = [*own[:1], *adopted, *own[1:]], []
            builds = [build(candidate) for _, candidate in batch]
        trials = []
        for position, measured in measurer.measure(builds, conditions, scratch, lambda: search.best):
            identifier, candidate = batch[position]
            trial = search.learn(candidate, measured)
            trials.append(trial)
            event = _event(trial, params["workload_key"], params["first_trial"] + done)
            if identifier is not None:
                event["candidate"] = identifier
            _append(params["spool"], event)
            emit("trial", event)
            done += 1
        with clock.step("train"):
            search.update(trials)
    ended = search.exhausted if reason == "trials" else None
    waited = measurer.queue_seconds - queued
    return {
        "trials": done,
        "exhausted": ended is not None,
        "reason": ended or reason,
        "spent": clock.spent,
        **({"queue_seconds": waited} if conditions.runner else {}),
    }


def _adopted(params: Json, search: Search, emit: Callable[[str, Json], None]) -> list[tuple[Any, Any]]:
    """Return id and candidate of the first schedules of the request's file that can be measured.

    Each is announced before it is checked, because a hostile one may end this process.
    """
    found: list[tuple[Any, Any]] = []
    path, most = params.get("candidates"), min(params.get("adopted") or 0, params["trials"] - 1)
    if path is None or search.exhausted is not None:
        return found
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            if len(found) >= most:
                break
            offered = json.loads(line)
            emit("candidate", {"id": offered["id"], "status": "checking"})
            try:
                candidate = search.admit(offered["schedule"])
            except NotInSpace as error:
                emit("candidate", {"id": offered["id"], "status": "rejected", "message": str(error)})
                continue
            emit("candidate", {"id": offered["id"], "status": "known" if candidate is None else "accepted"})
            if candidate is not None:
                found.append((offered["id"], candidate))
    return found


class _Clock:
    """Seconds per step of this round: its own steps plus the increase of the measurer's counters."""

    def __init__(self, measurer: Mapping[str, float]) -> None:
        self._measurer = measurer
        self._before = dict(measurer)
        self._own: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._own[name] += time.monotonic() - started

    @property
    def spent(self) -> dict[str, float]:
        return {**self._own, **{name: each - self._before.get(name, 0.0) for name, each in self._measurer.items()}}


def _event(trial: Trial, workload_key: str, number: int) -> Json:
    return {
        "workload_key": workload_key,
        "trial_number": number,
        "schedule": trial.line,
        "schedule_digest": trial.digest,
        "latencies": list(trial.measurement.latencies),
        "error": trial.measurement.error,
        "error_message": trial.measurement.message,
        "finished_at": trial.finished_at,
        "default": trial.is_default,
        "same_layout": trial.same_layout,
        "calibration": trial.measurement.calibration,
        **({"device": trial.measurement.device} if trial.measurement.device else {}),
    }


def _append(spool: str, event: Json) -> None:
    with Path(spool).open("a", encoding="utf-8") as file:
        file.write(json.dumps(event, separators=(",", ":")) + "\n")
