"""Stage ``compile``: the model once more, with the best records that anybody has for its tuning tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from domain import errors
from domain.records import Record
from storage import records, tuning_tasks
from worker.pipeline import building
from worker.pipeline.covering import record_identity
from worker.pipeline.work import RECORDS, TUNED, Outcome, Work

CANDIDATES = 128
"""Records a tuning task from which the engine chooses: the fastest operator is not always the best in its network."""


def run(work: Work) -> Outcome:
    """``tuned`` tells whether there is a tuned build; without records, or when it cannot be built, there is none."""
    candidates = candidate_records(work)
    if not candidates:
        work.note("no tuning task has a valid record: the untuned build is the only one")
        return {"tuned": False, "records": 0, "files": []}
    try:
        compiled = build(work, candidates)
    except errors.EngineError as error:
        work.keeper.check()
        work.note(f"the tuned build failed, the untuned one is left: {error.message[:500]}")
        return {"tuned": False, "records": 0, "files": []}
    return {"tuned": True, "records": len(compiled.records), "files": [RECORDS, *compiled.files]}


def build(work: Work, candidates: Sequence[Record]) -> building.Compiled:
    """The tuned build with the best of ``candidates``. Raises EngineError and the caller's errors."""
    path = work.folder / "candidates.jsonl"
    write(path, [record.schedule for record in candidates])
    compiled = building.tuned(work, TUNED, path)
    write(work.folder / RECORDS, compiled.records)
    return compiled


def candidate_lines(work: Work) -> list[str]:
    """Of ``candidate_records``, the native lines."""
    return [record.schedule for record in candidate_records(work)]


def candidate_records(work: Work) -> list[Record]:
    """Anybody's best records of the leading tuner for the job's tuning tasks, fastest first for each."""
    with work.database.reading() as session:
        keys = [task.extracted.workload_key for task in tuning_tasks.of_job(session, work.job.id)]
        found = records.top_of_many(session, keys, **record_identity(work), tuner=str(work.tuner), top=CANDIDATES)
    return [record for key in keys for record in found.get(key, ())]


def write(path: Path, lines: Sequence[str]) -> None:
    """All of the lines, or none."""
    partial = path.with_suffix(".partial")
    partial.write_text("".join(line.rstrip("\n") + "\n" for line in lines))
    partial.replace(path)
