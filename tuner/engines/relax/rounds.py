"""One request of tuning: a number of trials for one task, each told as soon as it is finished."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.trials import Build
from tuner.engines.relax import measuring, records, searching, targets


class Rounds:
    """The searches and measuring processes of an engine session."""

    def __init__(self) -> None:
        self._searches: dict[Any, searching.TaskSearch] = {}
        self._models: dict[Any, Any] = {}
        self._measurer = measuring.Measurer()

    def tune(self, params: Json, emit: Callable[[str, Json], None]) -> Json:
        """Measure up to ``params["trials"]`` new candidates.

        A trial is appended to the journal before ``emit`` is told of it, so what the host has not stored when it
        dies is still on disk.
        """
        conditions = measuring.conditions(params, emit)
        self._measurer.start(conditions)
        deadline = time.monotonic() + params["seconds"] if params.get("seconds") else None
        search = self._search(params)
        done = 0
        while done < params["trials"] and search.exhausted is None:
            if deadline is not None and time.monotonic() >= deadline:
                return _result(done, None, "seconds")
            emit("progress", {"step": "search"})
            candidates = search.propose(min(self._measurer.batch(conditions), params["trials"] - done))
            pairs = []
            for candidate, measured in self._measure(candidates, conditions, params):
                trial = search.learn(candidate, measured)
                pairs.append((candidate, trial))
                event = _event(trial, params["workload_key"], params["first_trial"] + done)
                _append(params["journal"], event)
                emit("trial", event)
                done += 1
            search.update(pairs)
        return _result(done, search.exhausted, "trials")

    def _measure(
        self, candidates: list[searching.Candidate], conditions: measuring.Conditions, params: Json
    ) -> Iterator[tuple[searching.Candidate, measuring.Measurement]]:
        place = (conditions.target, conditions.threads)
        builds = [Build(function="build", arguments=(params["task"], each.line, *place)) for each in candidates]
        for position, measured in self._measurer.measure(builds, conditions, Path(params["journal"]).parent):
            yield candidates[position], measured

    def _search(self, params: Json) -> searching.TaskSearch:
        options = searching.Options.of(params.get("options") or {})
        place = (params["target"], params["threads"])
        key = (params["workload_key"], *place, options)
        if key not in self._searches:
            target = targets.resolve(*place)
            work = records.read_definition(params.get("task"), params["workload_key"])
            if place not in self._models:
                self._models[place] = searching.cost_model()
            history = records.load(params.get("history"))
            self._searches[key] = searching.TaskSearch(work, target, self._models[place], options, history)
        return self._searches[key]

    def close(self) -> None:
        self._measurer.close()


def _event(trial: searching.Trial, workload_key: str, number: int) -> Json:
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
        "same_layout": True,
        **({"device": trial.measurement.device} if trial.measurement.device else {}),
    }


def _append(journal: str, event: Json) -> None:
    with Path(journal).open("a", encoding="utf-8") as file:
        file.write(json.dumps(event, separators=(",", ":")) + "\n")


def _result(done: int, exhausted: str | None, reason: str) -> Json:
    return {"trials": done, "exhausted": exhausted is not None, "reason": exhausted or reason}
