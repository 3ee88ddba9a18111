"""Stage ``compile``: the model once more, with the best records that anybody has for its tuning tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from domain import errors
from storage import records, tuning_tasks
from worker.pipeline import building
from worker.pipeline.covering import record_identity
from worker.pipeline.work import RECORDS, TUNED, Outcome, Work

CANDIDATES = 128
"""Records a tuning task from which the engine chooses: the fastest operator is not always the best in its network."""


def run(work: Work) -> Outcome:
    """``tuned`` tells whether there is a tuned build; without records, or when it cannot be built, there is none."""
    lines = candidate_lines(work)
    if not lines:
        work.note("no tuning task has a valid record: the untuned build is the only one")
        return {"tuned": False, "records": 0, "files": []}
    candidates = work.folder / "candidates.jsonl"
    _write(candidates, lines)
    try:
        compiled = building.tuned(work, TUNED, candidates)
    except errors.EngineError as error:
        work.keeper.check()
        work.note(f"the tuned build failed, the untuned one is left: {error.message[:500]}")
        return {"tuned": False, "records": 0, "files": []}
    _write(work.folder / RECORDS, compiled.records)
    return {"tuned": True, "records": len(compiled.records), "files": [RECORDS, *compiled.files]}


def candidate_lines(work: Work) -> list[str]:
    """Anybody's best records of the leading tuner for the job's tuning tasks, fastest first for each."""
    with work.database.reading() as session:
        keys = [task.extracted.workload_key for task in tuning_tasks.of_job(session, work.job.id)]
        found = records.top_of_many(session, keys, **record_identity(work), tuner=str(work.tuner), top=CANDIDATES)
    return [record.schedule for key in keys for record in found.get(key, ())]


def _write(path: Path, lines: Sequence[str]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text("".join(line.rstrip("\n") + "\n" for line in lines))
    partial.replace(path)
