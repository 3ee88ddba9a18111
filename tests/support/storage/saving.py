"""``python -m tests.support.storage.saving`` writes ``saved/REVISION.sql``: a database at head with rows in every table

Run it once with each new revision. Later releases are tested by upgrading it, so it is never written again.
"""

from __future__ import annotations

import sqlite3
import tempfile
from datetime import timedelta
from pathlib import Path

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from domain.data_sets import DataFacts
from domain.digests import BlobDigest, FileDigest
from domain.jobs import JobState, Stage
from domain.models import TensorSpec
from domain.records import TrialError
from domain.sizes import Size
from domain.tuning_tasks import Effort
from storage import (
    artifacts,
    data_sets,
    idempotency,
    imports,
    job_logs,
    jobs,
    periodic_tasks,
    records,
    shared_rounds,
    stages,
    tuning_tasks,
    workers,
    workloads,
)
from storage.blobs import ownership
from storage.database import Database, migrate
from storage.tables import BrowserSessionRow, ModelOwnerRow, ModelRow, TokenRow, WebhookDeliveryRow, WebhookRow
from tests.support import stage_results
from tests.support.storage.factories import NOW, PLACEMENT, add_job, artifact, imported, offer, record, task, worker

SAVED = Path(__file__).parent / "saved"


def fill(session: Session) -> None:
    job_id = add_job(session, labels={"branch": "main"}, input_shapes={"x": (1, 3, 48, 192)}).id
    job = jobs.claim(session, job_id, worker_id="host:1:2", now=NOW, lease_seconds=60, max_attempts=3)
    assert job is not None
    assert job.lease is not None
    jobs.set_placement(session, job_id, job.lease, PLACEMENT)
    jobs.set_stage(session, job_id, job.lease, Stage.PUBLISH)
    jobs.set_progress(session, job_id, job.lease, trials_done=2, trials_planned=2)
    stages.save(session, job_id, job.lease, stage_results.of(Stage.IMPORT), started_at=NOW, finished_at=NOW)
    tuning_tasks.save_plan(session, job_id, [task(job_id)])
    tuning_tasks.set_effort(session, job_id, {"dense": Effort(trials=64.0, seconds=12.5)})
    workloads.put_many(session, {"dense": '["dense", "a module"]'}, tuner="metaschedule")
    workloads.put_extracted(session, "0" * 64, [task(job_id).extracted], now=NOW)
    workers.quarantine(session, "tracker:9190/board/device:9090", job_id=job_id, reason="gone", now=NOW, seconds=600)
    worked = record("dense", 1e-3, 2e-3, schedule="a", job_id=job_id, calibration=9.1e-5)
    records.add(session, [worked, record("dense", schedule="b", error=TrialError.BUILD_ERROR, job_id=job_id)])
    data_sets.add(
        session, digest=BlobDigest(FileDigest("d" * 64)), name="val", owner="team", size_bytes=9, now=NOW,
        facts=DataFacts(arrays=(TensorSpec(name="x", dtype="float32", shape=(2, 3)),), rows=2),
    )  # fmt: skip
    imports.add_unknown(session, [imported("dense", 1e-12, schedule="c", owner="team")])
    job_logs.keep(session, job_id, job.lease.attempt, job_logs.Tail(start=7, content=b"building\n\xff\n"))
    published = artifacts.add(session, artifact(job_id))
    jobs.finish(session, job_id, job.lease, state=JobState.SUCCEEDED, artifact_id=published.id, now=NOW)
    sizes = tuple(
        Size(name=f"batch={n}", values={"batch": n}, input_shapes={"x": (n, 3, 48, 192)}, share=0.5) for n in (1, 8)
    )
    whole = add_job(session, sizes=sizes)
    artifacts.add(session, artifact(whole.id, "joint", input_shapes={"x": (0, 3, 48, 192)}, sizes=sizes))
    # A job that has ended has no rounds any more.
    led = jobs.claim(session, add_job(session).id, worker_id="w", now=NOW, lease_seconds=60, max_attempts=5)
    assert led is not None
    assert led.lease is not None
    shared_rounds.open_round(session, led.id, led.lease.attempt, offer(), now=NOW)
    workers.beat(session, worker())
    periodic_tasks.take(session, "garbage", every=timedelta(days=1), now=NOW)
    ownership.own_identity(session, now=NOW)
    idempotency.IdempotentRequest(key_digest="3" * 64, fingerprint="fingerprint").remember(session, job_id, now=NOW)
    _fill_access(session, job_id)


def _fill_access(session: Session, job_id: str) -> None:
    model = session.scalars(select(ModelRow.digest)).one()
    session.merge(ModelOwnerRow(model_digest=model, owner="local", created_at=NOW))
    session.add(
        TokenRow(
            id="t-1", secret_digest="1" * 64, name="ci", owner="team", scopes=["read", "submit"],
            quota={"queued_jobs": 5}, created_at=NOW, expires_at=NOW, last_used_at=NOW, revoked_at=None,
        )
    )  # fmt: skip
    session.flush()
    session.add_all(
        [
            BrowserSessionRow(secret_digest="2" * 64, is_link=True, token_id="t-1", created_at=NOW, expires_at=NOW),
            WebhookRow(job_id=job_id, url="https://ci.example/hook", secret="whsec_AAAA"),
            WebhookDeliveryRow(
                id="w-1", job_id=job_id, attempts=1, created_at=NOW, next_attempt_at=NOW, delivered_at=None,
                last_status=503, last_error="the receiver answered 503",
            ),
        ]
    )  # fmt: skip


def save(folder: Path) -> Path:
    """Write the dump into ``folder``. Raises FileExistsError when the revision was saved before."""
    with tempfile.TemporaryDirectory() as scratch:
        database = Database(f"sqlite:///{scratch}/db.sqlite3")
        migrate(database)
        with database.transaction() as session:
            fill(session)
            revision = session.scalar(text("SELECT version_num FROM alembic_version"))
        database.close()
        connection = sqlite3.connect(f"{scratch}/db.sqlite3")
        dump = "\n".join(connection.iterdump()) + "\n"
        connection.close()
    path = folder / f"{revision}.sql"
    with path.open("x") as file:
        file.write(dump)
    return path


if __name__ == "__main__":
    save(SAVED)
