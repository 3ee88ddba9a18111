"""What a search is told before its first trial: nothing on record is measured again, and cost models learn from it."""

from __future__ import annotations

from pathlib import Path

from domain.jobs import Tuner
from domain.records import Record, RecordKey
from domain.tuning_tasks import ExtractedTask
from storage import records
from storage.tables import digest_of
from worker.pipeline.covering import record_identity
from worker.pipeline.work import Work

_TRANSFERRED = 512
"""Records of other workloads: a cost model learns from them in a second or two."""


def write(work: Work, task: ExtractedTask) -> str | None:
    """The file with native lines of one tuning task, and those that help with it; None when there are none."""
    lines = [record.schedule.rstrip("\n") + "\n" for record in [*_own(work, task), *_others(work, task)]]
    if not lines:
        return None
    path: Path = work.folder / "history" / f"{digest_of(task.workload_key)[:16]}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(lines))
    return str(path)


def _own(work: Work, task: ExtractedTask) -> list[Record]:
    key = RecordKey(workload_key=task.workload_key, **record_identity(work))
    with work.database.reading() as session:
        known = records.of_key(session, key)
    # Others' failures may be due to their time limits; their successes need no second measurement.
    return [
        record
        for record in known
        if record.tuner == str(work.tuner) and (record.error is None or record.job_id == work.job.id)
    ]


def _others(work: Work, task: ExtractedTask) -> list[Record]:
    """Of other workloads of the same kind."""
    if work.tuner is not Tuner.AUTOTVM or not work.request.tuner_options.transfer:
        return []
    with work.database.reading() as session:
        return records.transfer_candidates(
            session,
            task.name,
            excluding_workload=task.workload_key,
            **record_identity(work),
            tuner=str(work.tuner),
            limit=_TRANSFERRED,
        )
