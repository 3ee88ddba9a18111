"""Builds that fail with a record: find the record, withdraw it, and build with the next best one of its task.

A network is built without records, then with those of half of its tasks, and so on, until one task is to blame. Its
records are tried one by one. Only a record with which a build fails that succeeds without it is withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from domain import errors
from domain.records import ImportedRecord, ImportState, Record, TrialError
from domain.stage_results import Build
from storage import imports, jobs, records
from tuner.native import lines
from worker.pipeline import builds, recovery
from worker.pipeline.context import JobContext

AnyRecord = Record | ImportedRecord
_Kept = Mapping[str, Sequence[AnyRecord]]
"""Records by workload, the fastest first."""
_MOST_BUILDS = 24
_MOST_RECORDS = 3
"""Records of one task that are tried before the task is built without any."""
_LONGEST_MESSAGE = 4000


class _GivenUp(Exception):
    """There is no time for another build."""


def tuned(
    context: JobContext, build: Build, candidates: Sequence[AnyRecord], *, has_time: Callable[[], bool]
) -> tuple[builds.Compiled, Sequence[AnyRecord]]:
    """Build with the best of the records; return the build and the records that were offered to it.

    If it fails because of records, these are withdrawn and left out. Raises EngineError and the caller's errors.
    """
    try:
        return builds.tuned(context, build, _lines(candidates)), candidates
    except (errors.EngineRequestFailed, errors.EngineCrashed) as error:
        recovery.tolerate(context, error)
        if not candidates:
            raise
        kept = _Blame(context, build, has_time).without_failing(candidates)
        if kept is None:
            raise
    return builds.tuned(context, build, _lines(kept)), kept


class _Blame:
    def __init__(self, context: JobContext, build: Build, has_time: Callable[[], bool]) -> None:
        self._context = context
        self._build = build
        self._has_time = has_time
        self._left = _MOST_BUILDS
        self._error = ""

    def without_failing(self, candidates: Sequence[AnyRecord]) -> list[AnyRecord] | None:
        """Return the records of a build that succeeds, given those of one that failed; None if there is none."""
        kept: dict[str, list[AnyRecord]] = {}
        # Several jobs may have measured one schedule.
        for record in {(each.key.workload_key, each.schedule_digest): each for each in reversed(candidates)}.values():
            kept.setdefault(record.key.workload_key, []).insert(0, record)
        try:
            if not self._builds({}):
                return None
            while kept:
                task, others = self._culprit(kept)
                kept[task] = self._usable(kept[task], {key: kept[key] for key in others})
                if not kept[task]:
                    del kept[task]
                if self._builds(kept):
                    return [record for some in kept.values() for record in some] or None
        except _GivenUp:
            pass
        return None

    def _culprit(self, kept: _Kept) -> tuple[str, list[str]]:
        """Return a task whose records make the build fail beside those of the other tasks that are returned."""
        good: list[str] = []
        suspects = list(kept)
        while len(suspects) > 1:
            half = suspects[: len(suspects) // 2]
            if self._builds({key: kept[key] for key in (*good, *half)}):
                good += half
                suspects = suspects[len(half) :]
            else:
                suspects = half
        return suspects[0], good

    def _usable(self, suspects: Sequence[AnyRecord], others: _Kept) -> list[AnyRecord]:
        """Return the first record of a task that can be built, if any, and withdraw those before it."""
        for record in suspects[:_MOST_RECORDS]:
            if self._builds({**others, record.key.workload_key: [record]}):
                return [record]
            self._withdraw(record)
        return []

    def _builds(self, kept: _Kept) -> bool:
        """Raises _GivenUp, EngineError and the caller's errors."""
        if not self._left or not self._has_time():
            raise _GivenUp
        self._left -= 1
        try:
            builds.tuned(self._context, self._build, _lines(record for some in kept.values() for record in some))
        except (errors.EngineRequestFailed, errors.EngineCrashed) as error:
            recovery.tolerate(self._context, error)
            self._error = error.message
            return False
        return True

    def _withdraw(self, record: AnyRecord) -> None:
        """Withdraw a record of the job's owner; one of another owner is only left out of this build."""
        context, owner = self._context, self._context.job.owner
        message = f"{self._build.name} cannot be built with it: {self._error}"[:_LONGEST_MESSAGE]
        with context.transaction() as session:
            if isinstance(record, ImportedRecord):
                imports.settle(
                    session, record.id, ImportState.FAILED, owner=owner, job_id=context.job.id, message=message
                )
            elif jobs.is_owned(session, record.job_id, owner):
                records.invalidate(
                    session,
                    record.key,
                    record.schedule_digest,
                    error=TrialError.BUILD_ERROR,
                    message=message,
                    rewrite=partial(lines.as_unbuildable, record.tuner),
                )
        context.note(f"a record of {record.key.workload_key[:100]} was left out: {message[:300]}")


def _lines(candidates: Iterable[AnyRecord]) -> list[str]:
    return [record.schedule for record in candidates]
