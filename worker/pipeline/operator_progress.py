"""Report in ``stage`` events how many operators an engine has handled, so that a long stage shows life."""

from __future__ import annotations

import logging
import time
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from domain.jobs import EventKind
from storage import events, jobs
from worker import clock
from worker.pipeline.context import JobContext

_LEAST_PAUSE = 2.0
_PARTS = 50
"""Events of one step, at most: a step of minutes is reported less often."""
_DONE = {
    "import": "imported", "fold": "folded", "build": "built", "schedule": "scheduled", "extract": "examined",
    "try": "tried",
}  # fmt: skip
_GENERATE = "generate"
"""The step that handles all operators at once."""

_log = logging.getLogger(__name__)


class OperatorProgress:
    """Listens to the engines of one job."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._step: tuple[str, str] = ("", "")
        self._done = 0
        self._reported_at = 0.0

    def hear(self, engine: str, kind: str, data: dict[str, Any]) -> None:
        """Store a ``progress`` event that counts operators, unless the last one is too recent."""
        done, total, step = data.get("done"), data.get("total"), str(data.get("step"))
        if kind != "progress" or step not in (*_DONE, _GENERATE) or not isinstance(done, int):
            return
        if step == _GENERATE:
            if self._step != (engine, step):
                self._step = (engine, step)
                self._report(f"{engine} generates code for {int(total or 0)} operators")
            return
        if self._step != (engine, step) or done < self._done:
            self._step, self._done = (engine, step), 0
        passed = time.monotonic() - self._reported_at >= _LEAST_PAUSE
        if not passed or (isinstance(total, int) and (done - self._done) * _PARTS < total):
            return
        self._done, self._reported_at = done, time.monotonic()
        of_total = f" of {total}" if isinstance(total, int) else ""
        self._report(f"{engine} {_DONE[step]} {done}{of_total} operators")

    def _report(self, message: str) -> None:
        context = self._context
        data = {"stage": context.limit.stage.value, "status": "working", "message": message}
        try:
            with context.database.transaction() as session:
                if jobs.holds(session, context.job.id, context.lease):
                    events.append(session, context.job.id, EventKind.STAGE, data, now=clock.now())
        except SQLAlchemyError:
            _log.warning("job %s: progress was not stored", context.job.id, exc_info=True)
