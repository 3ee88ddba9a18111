"""Imported schedules as candidates: a job measures some of its owner's imports before it searches.

What the imports claim only orders them. A round spends at most a quarter of its trials on them, and a job a few trials
a task, so that a file of junk costs no more. The engine first checks each against the task's search space, which costs
no trial. What became of each is stored with it, and nothing is tried twice.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from domain.jobs import Job
from domain.records import ImportState, RecordKey
from storage import imports
from storage.tables import digest_of
from worker.pipeline import reuse
from worker.pipeline.context import JobContext

MOST_TRIALS = 8
"""Trials that a job spends on imported schedules of one task."""
_SHARE = 4
"""One trial of so many of a round, without the first, is spent on an imported schedule."""
_CHECKED = 4
"""Schedules that the engine may check for each trial."""
_LONGEST_MESSAGE = 4000
_VERDICTS = {"rejected": ImportState.REJECTED, "known": ImportState.MEASURED}
_ENDED_ENGINE = "the engine ended while it checked the schedule"


class Candidates:
    """The imported schedules of one strategy's tasks."""

    def __init__(self, context: JobContext, workload_keys: list[str]) -> None:
        self._context = context
        with context.database.reading() as session:
            found = reuse.imported(session, context, workload_keys, tuner=context.tuner, most=1)
        self.waiting = set(found)
        """Workloads with candidates of which this worker has not run a round yet."""
        self._with_candidates = frozenset(found)
        self._checking: int | None = None
        if found:
            context.note_once(
                f"imported schedules are measured first, at most {MOST_TRIALS} a task: {len(found)} tasks"
            )

    def of_round(self, workload_key: str, trials: int) -> dict[str, Any]:
        """Return the parameters of a ``tune`` request for a round of that many trials."""
        self.waiting.discard(workload_key)
        if workload_key not in self._with_candidates:
            return {}
        context = self._context
        key = RecordKey(workload_key=workload_key, **reuse.record_identity(context))
        owner, tuner = context.job.owner, str(context.tuner)
        with context.database.reading() as session:
            spent = imports.tried_by(session, context.job.id, key, owner=owner, tuner=tuner)
            most = min(math.ceil((trials - 1) / _SHARE), MOST_TRIALS - spent)
            checked = max(0, _CHECKED * most)
            found = reuse.imported(session, context, [workload_key], tuner=context.tuner, most=checked)
        if workload_key not in found:
            return {}
        path: Path = context.folder / "candidates" / f"{digest_of(workload_key)[:16]}.jsonl"
        path.parent.mkdir(exist_ok=True)
        offered = [{"id": record.id, "schedule": record.schedule} for record in found[workload_key]]
        path.write_text("".join(json.dumps(each) + "\n" for each in offered))
        return {"candidates": str(path), "adopted": most}

    def on_event(self, data: dict[str, Any]) -> None:
        """Store the engine's verdict on a candidate. Raises LeaseLost."""
        status, identifier = str(data["status"]), int(data["id"])
        self._checking = identifier if status == "checking" else None
        if status in _VERDICTS:
            self._settle(identifier, _VERDICTS[status], data.get("message"))

    def on_crash(self) -> None:
        """Reject the candidate whose check the engine did not survive. Raises LeaseLost."""
        if self._checking is not None:
            self._settle(self._checking, ImportState.REJECTED, _ENDED_ENGINE)
            self._checking = None

    def _settle(self, identifier: int, state: ImportState, message: str | None) -> None:
        context = self._context
        with context.transaction() as session:
            _settle(session, context.job, identifier, state, message)


def settle_trial(session: Session, job: Job, trial: dict[str, Any]) -> None:
    """Store that a trial measured an imported schedule, if it did."""
    if trial.get("candidate") is None:
        return
    error = trial["error"]
    state = ImportState.MEASURED if error is None else ImportState.FAILED
    message = None if error is None else f"{error}: {trial.get('error_message') or ''}"
    _settle(session, job, int(trial["candidate"]), state, message)


def _settle(session: Session, job: Job, record_id: int, state: ImportState, message: str | None) -> None:
    shown = message[:_LONGEST_MESSAGE] if message else None
    imports.settle(session, record_id, state, owner=job.owner, job_id=job.id, message=shown)
