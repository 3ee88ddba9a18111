"""One request of tuning: a number of trials for one task, each told as soon as it is finished."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import measuring, targets, tuners

_SEARCH = ("tuner", "workload_key", "target", "threads", "precision", "options")
"""The parameters that make a search what it is; the others change from round to round."""


class Rounds:
    """The tuners and measuring processes of an engine session."""

    def __init__(self) -> None:
        self._tuners: dict[str, tuners.TaskTuner] = {}
        self._measurer = measuring.Measurer()

    def tune(self, params: Json, emit: Callable[[str, Json], None]) -> Json:
        """Measure up to ``params["trials"]`` new candidates.

        A trial is appended to the journal before ``emit`` is told of it, so what the host has not stored when it
        dies is still on disk.
        """
        conditions = measuring.Conditions.of(params, lambda lost: emit("device", lost))
        self._measurer.start(conditions)
        tuner = self._tuner(params)
        deadline = time.monotonic() + params["seconds"] if params.get("seconds") else None
        done = 0
        while done < params["trials"] and tuner.exhausted is None:
            if deadline is not None and time.monotonic() >= deadline:
                return _result(done, None, "seconds")
            batch = min(self._measurer.batch(conditions), params["trials"] - done)
            trials = []
            for trial in self._measure(tuner, batch, conditions, params):
                trials.append(trial)
                event = _event(trial, params["workload_key"], params["first_trial"] + done)
                _append(params["journal"], event)
                emit("trial", event)
                done += 1
            tuner.update(trials)
        return _result(done, tuner.exhausted, "trials")

    def _measure(
        self, tuner: tuners.TaskTuner, batch: int, conditions: measuring.Conditions, params: Json
    ) -> Iterator[tuners.Trial]:
        candidates = tuner.propose(batch)
        builds = [tuners.of(params).build(params, candidate) for candidate in candidates]
        for position, measured in self._measurer.measure(builds, conditions, Path(params["journal"]).parent):
            yield tuner.learn(candidates[position], measured)

    def _tuner(self, params: Json) -> tuners.TaskTuner:
        key = json.dumps([params.get(name) for name in _SEARCH], sort_keys=True)
        if key not in self._tuners:
            target = targets.resolve(params["target"], params["threads"])
            self._tuners[key] = tuners.of(params).start(params, target)
        return self._tuners[key]

    def close(self) -> None:
        self._measurer.close()


def _event(trial: tuners.Trial, workload_key: str, number: int) -> Json:
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
        **({"device": trial.measurement.device} if trial.measurement.device else {}),
    }


def _append(journal: str, event: Json) -> None:
    with Path(journal).open("a", encoding="utf-8") as file:
        file.write(json.dumps(event, separators=(",", ":")) + "\n")


def _result(done: int, exhausted: str | None, reason: str) -> Json:
    return {"trials": done, "exhausted": exhausted is not None, "reason": exhausted or reason}
