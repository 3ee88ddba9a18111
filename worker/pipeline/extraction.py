"""The tuning tasks that an engine finds in the model, found once for everybody.

They are kept under two keys: by the digest of the very file that the engine reads, as jobs look them up, and by that of
the uploaded model, as plans do, which then need neither prepare nor rewrite it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from domain.extractions import key_of
from domain.jobs import Stage
from domain.tuning_tasks import ExtractedTask
from storage import jobs, workloads
from storage.tables import digest_of
from tuner import precisions
from worker import clock
from worker.pipeline.work import Work

_EXTRACT_SECONDS = 1800.0


def tasks(work: Work) -> list[ExtractedTask]:
    """Of the leading tuner. Raises EngineError, LeaseLost."""
    found = known(work)
    return found if found is not None else _extract(work)


def known(work: Work) -> list[ExtractedTask] | None:
    """Of the leading tuner, if anybody has extracted them."""
    key = _key(work, _digest(work.build_params(work.tuner)["model"]))
    with work.database.reading() as session:
        return workloads.extracted(session, key)


def _digest(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _key(work: Work, model_digest: str) -> str:
    return key_of(
        model_digest=model_digest,
        input_shapes={spec["name"]: spec["shape"] for spec in work.outcomes[Stage.IMPORT]["inputs"]},
        target=work.target,
        toolchain=work.toolchains[work.engine],
        tuner=work.tuner,
        precision=precisions.first(work.request),
        rewrite=work.rewrites,
        options=work.request.tuner_options,
        plugins=work.plugins.get(work.engine, ()),
    )


def definition(work: Work, workload_key: str) -> str | None:
    """The file with the workload's native form, where its key alone does not rebuild it."""
    path = _folder(work) / f"{digest_of(workload_key)[:32]}.jsonl"
    if not path.is_file():
        with work.database.reading() as session:
            text = workloads.definitions(session, [workload_key]).get(workload_key)
        if text is None:
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(path)


def _extract(work: Work) -> list[ExtractedTask]:
    folder = work.folder / "extracted" / str(work.tuner)
    folder.mkdir(parents=True, exist_ok=True)
    params = {**work.build_params(work.tuner), "out_dir": str(folder)}
    answer = work.ask(work.compiler(), "extract", params, timeout=_EXTRACT_SECONDS)
    found = [ExtractedTask(**task) for task in answer["tasks"]]
    texts = {task.workload_key: (folder / task.definition).read_text() for task in found if task.definition}
    keys = [_key(work, digest) for digest in (work.model.digest, _digest(params["model"]))]
    with work.database.transaction() as session:
        work.keeper.require(jobs.holds(session, work.job.id, work.lease))
        workloads.put_many(session, texts, tuner=str(work.tuner))
        for key in keys:
            workloads.put_extracted(session, key, found, now=clock.now())
    return found


def _folder(work: Work) -> Path:
    return work.folder / "definitions"
