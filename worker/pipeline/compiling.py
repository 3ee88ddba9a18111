"""Stage ``compile``: the model once more, with the best records that anybody has for its tuning tasks."""

from __future__ import annotations

from domain import errors
from storage import records, tuning_tasks
from worker.pipeline import building
from worker.pipeline.planning import record_identity
from worker.pipeline.work import RECORDS, TUNED, Outcome, Work


def run(work: Work) -> Outcome:
    """``tuned`` tells whether there is a tuned build; without records, or when it cannot be built, there is none."""
    with work.database.reading() as session:
        keys = [task.extracted.workload_key for task in tuning_tasks.of_job(session, work.job.id)]
        best = records.best_of_many(session, keys, **record_identity(work))
    if not best:
        work.note("no tuning task has a valid record: the untuned build is the only one")
        return {"tuned": False, "records": 0, "files": []}
    path = work.folder / RECORDS
    partial = path.with_suffix(".partial")
    partial.write_text("".join(best[key].schedule.rstrip("\n") + "\n" for key in keys if key in best))
    partial.replace(path)
    try:
        files = building.compile_variant(work, TUNED, records=path)
    except (errors.EngineRequestFailed, errors.EngineCrashed) as error:
        work.keeper.check()
        work.note(f"the tuned build failed, the untuned one is left: {error.message[:500]}")
        return {"tuned": False, "records": len(best), "files": []}
    return {"tuned": True, "records": len(best), "files": [RECORDS, *files]}
