"""Reuse: what earlier searches found of a job's tuning tasks, and what a search gets of it before its first trial.

Records are not measured again, cost models learn from them, and tasks that other jobs are searching are left to them.
Tasks that an engine extracted from the same model before are not extracted again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy.orm import Session

from domain.digests import FileDigest
from domain.jobs import Tuner
from domain.records import ImportedRecord, Record, RecordKey, RecordPlace
from domain.tuning_tasks import Coverage, ExtractedTask, TuningTask, key_of
from storage import imports, records, tuning_tasks, workloads
from storage.tables import digest_of
from tuner.search import planning, precisions
from worker import clock
from worker.pipeline.context import EXTRACT_SECONDS, JobContext

CANDIDATES = 128
"""Records per tuning task for the engine to choose from: the fastest operator is not always best in its network."""
_TRANSFERRED = 512
"""Records of other workloads; a cost model learns from so many in a second or two."""


def record_identity(context: JobContext) -> RecordPlace:
    """Target, device and toolchain, which every lookup of records must match."""
    toolchain = context.toolchains[context.engine].identity
    return RecordPlace(target=context.target.identity, device_key=context.device.key, toolchain=toolchain)


def coverage(session: Session, context: JobContext, extracted: Sequence[ExtractedTask]) -> dict[str, Coverage]:
    """What other jobs have measured; the job's own trials count against its plan."""
    keys = [task.workload_key for task in extracted]
    return tuning_tasks.coverage(session, keys, **record_identity(context), excluding_job=context.job.id)


def allot(
    session: Session, context: JobContext, extracted: Sequence[ExtractedTask], *, without: Collection[str] = ()
) -> tuple[list[TuningTask], float | None]:
    """Divide the budget: trials for each task, less what other jobs have spent on it, and the seconds that are left.

    ``without``: workloads whose seconds are reserved, as they may still be needed.
    """
    request = context.request
    cap = request.tuner_options.n_trial
    covered = coverage(session, context, extracted)
    keys = [task.workload_key for task in extracted]
    budget = planning.less_trials(request.budget, trials_beside(session, context, keys))
    planned = planning.plan(context.job.id, extracted, budget, covered=covered, n_trial=cap)
    if not context.measures:
        planned = planning.without_trials(planned)
    trials = {
        task.extracted.workload_key: task.trials_planned
        for task in planned
        if task.extracted.workload_key not in without
    }
    seconds = planning.seconds(extracted, budget, trials, covered=covered, n_trial=cap)
    return planned, seconds


def trials_beside(session: Session, context: JobContext, keys: Collection[str]) -> int:
    """Trials that the job spent on workloads other than these: on those of strategies that do not lead."""
    own = set(keys)
    return sum(record.key.workload_key not in own for record in records.of_job(session, context.job.id))


def elsewhere(session: Session, context: JobContext, keys: Sequence[str]) -> dict[str, str]:
    """Workloads that another job is searching now, with that job's id."""
    return tuning_tasks.tuned_elsewhere(session, context.job.id, keys, **record_identity(context), now=clock.now())


def imported(
    session: Session, context: JobContext, keys: Sequence[str], *, tuner: Tuner, most: int
) -> dict[str, list[ImportedRecord]]:
    """Return at most ``most`` untried records of each workload that the job's owner imported, as their claims order
    them."""
    place = record_identity(context)
    return imports.candidates(session, keys, owner=context.job.owner, tuner=str(tuner), most=most, **place)


def write(context: JobContext, task: ExtractedTask) -> str | None:
    """Write the file of native records for one tuning task, and of similar tasks; None without any."""
    lines = [record.schedule.rstrip("\n") + "\n" for record in [*_own(context, task), *_others(context, task)]]
    if not lines:
        return None
    path: Path = context.folder / "history" / f"{digest_of(task.workload_key)[:16]}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(lines))
    return str(path)


def _own(context: JobContext, task: ExtractedTask) -> list[Record]:
    key = RecordKey(workload_key=task.workload_key, **record_identity(context))
    with context.database.reading() as session:
        known = records.of_key(session, key)
    # Failures of other jobs may be due to their time limits; their successes are not measured again.
    return [
        record
        for record in known
        if record.tuner == str(context.tuner) and (record.error is None or record.job_id == context.job.id)
    ]


def _others(context: JobContext, task: ExtractedTask) -> list[Record]:
    """Records of other workloads of the same kind."""
    if context.tuner is not Tuner.AUTOTVM or not context.request.tuner_options.transfer:
        return []
    with context.database.reading() as session:
        return records.transfer_candidates(
            session,
            task.name,
            excluding_workload=task.workload_key,
            **record_identity(context),
            tuner=str(context.tuner),
            limit=_TRANSFERRED,
        )


def tasks_of(
    context: JobContext, *, seconds: float = EXTRACT_SECONDS, canceled: Callable[[], bool] | None = None
) -> list[ExtractedTask]:
    """Tuning tasks of the leading tuner, extracted within ``seconds`` unless ``canceled``, or the job, ends it.

    Tasks beside another tuner depend on its records, and are extracted anew. Raises Canceled, EngineError, LeaseLost.
    """
    if context.beside is not None:
        return _extract(context, seconds, canceled)
    found = known(context)
    if found is not None:
        return found
    error = context.extraction_errors.pop(context.tuner, None)
    if error is not None:
        raise error
    return _extract(context, seconds, canceled)


def known(context: JobContext) -> list[ExtractedTask] | None:
    """Tuning tasks of the leading tuner, if they were extracted before."""
    key = _key(context, _digest(context.build_params(context.tuner)["model"]))
    with context.database.reading() as session:
        return workloads.extracted(session, key)


def _digest(path: str) -> FileDigest:
    with Path(path).open("rb") as file:
        return FileDigest(hashlib.file_digest(file, "sha256").hexdigest())


def _key(context: JobContext, model_digest: FileDigest) -> str:
    return key_of(
        model_digest=model_digest,
        input_shapes=context.input_shapes,
        target=context.target,
        toolchain=context.toolchains[context.engine],
        tuner=context.tuner,
        precision=precisions.first(context.request),
        rewrite=context.rewrites,
        options=context.request.tuner_options,
        plugins=context.plugins.get(context.engine, ()),
        beside=context.beside,
    )


def definition(context: JobContext, workload_key: str) -> str | None:
    """The file with the workload's native form, if its key alone does not suffice to rebuild it."""
    path = context.folder / "definitions" / f"{digest_of(workload_key)[:32]}.jsonl"
    if not path.is_file():
        with context.database.reading() as session:
            text = workloads.definitions(session, [workload_key]).get(workload_key)
        if text is None:
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(path)


def _extract(context: JobContext, seconds: float, canceled: Callable[[], bool] | None) -> list[ExtractedTask]:
    folder = context.folder / "extracted" / (f"beside-{context.beside}" if context.beside else str(context.tuner))
    folder.mkdir(parents=True, exist_ok=True)
    params = {**context.build_params(context.tuner), **_beside(context), "out_dir": str(folder)}
    answer = context.ask(context.compiler(), "extract", params, timeout=seconds, canceled=canceled)
    found = [ExtractedTask(**task) for task in answer["tasks"]]
    texts = {task.workload_key: (folder / task.definition).read_text() for task in found if task.definition}
    keys = [_key(context, digest) for digest in (context.model.digest, _digest(params["model"]))]
    with context.transaction() as session:
        workloads.put_many(session, texts, tuner=str(context.tuner))
        for key in keys:
            workloads.put_extracted(session, key, found, now=clock.now())
    return found


def _beside(context: JobContext) -> dict[str, str]:
    """The parameter that names the records of the build whose operators are extracted."""
    if context.beside is None:
        return {}
    path = context.folder / f"beside-{context.beside}.jsonl"
    led = replace(context, tuner=context.beside, beside=None)
    path.write_text("".join(f"{record.schedule.rstrip()}\n" for record in best_records(led)))
    return {"beside": str(path)}


def best_records(context: JobContext) -> list[Record]:
    """The store's best records of the leading tuner for its tuning tasks, fastest first for each."""
    keys = [task.workload_key for task in known(context) or ()]
    with context.database.reading() as session:
        found = records.top_of_many(session, keys, **record_identity(context), tuner=str(context.tuner), top=CANDIDATES)
    return [record for key in keys for record in found.get(key, ())]
