"""The tables. Classes are named ``…Row``; the name without it is the domain's value."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, String, Text, UniqueConstraint, text, true
from sqlalchemy.orm import Mapped, mapped_column

from domain.digests import ArtifactDigest, BlobDigest, ModelDigest, ScheduleDigest, SecretDigest, WorkloadDigest
from domain.tokens import LOCAL_OWNER
from storage.columns import DIGEST, SerialNumber
from storage.columns import Base as Base
from storage.columns import digest_of as digest_of
from storage.columns import workload_digest as workload_digest


class ModelRow(Base):
    __tablename__ = "models"
    __table_args__ = (Index(None, "created_at", "id"),)

    digest: Mapped[ModelDigest] = mapped_column(DIGEST, primary_key=True)
    id: Mapped[str] = mapped_column(String(66), unique=True)
    name: Mapped[str] = mapped_column(Text)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    facts: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    deleted_at: Mapped[datetime | None]
    """Set at deletion: the model has no owners, and its bytes may be removed; the row is kept for its jobs."""


class ModelOwnerRow(Base):
    """Owners of a model: everyone who uploaded its bytes, and may therefore see its artifacts."""

    __tablename__ = "model_owners"

    model_digest: Mapped[ModelDigest] = mapped_column(ForeignKey("models.digest", ondelete="CASCADE"), primary_key=True)
    owner: Mapped[str] = mapped_column(String(100), primary_key=True, index=True)
    created_at: Mapped[datetime]


class DataSetRow(Base):
    __tablename__ = "data_sets"
    __table_args__ = (
        Index(None, "created_at", "id"),
        Index(
            "ix_data_sets_names",
            "owner",
            "name",
            unique=True,
            sqlite_where=text("deleted_at IS NULL"),
            postgresql_where=text("deleted_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    digest: Mapped[BlobDigest] = mapped_column(DIGEST, index=True)
    name: Mapped[str] = mapped_column(String(200))
    owner: Mapped[str] = mapped_column(String(100), index=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    facts: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    deleted_at: Mapped[datetime | None]
    """Set at deletion; the row is kept for the jobs that used it."""


class JobRow(Base):
    __tablename__ = "jobs"
    __table_args__ = (
        Index(None, "state", "created_at"),
        Index(None, "created_at", "id"),
        Index(None, "model_digest", "created_at"),
        Index(None, "owner", "created_at"),
        Index(None, "owner", "started_at"),
        Index(None, "group_name", "created_at"),
        # Parts, which are never claimed from the queue, are not in it.
        Index(
            "ix_jobs_queue",
            "state",
            "priority",
            "owner",
            "created_at",
            "id",
            sqlite_where=text("part_of IS NULL"),
            postgresql_where=text("part_of IS NULL"),
        ),
        Index(None, "token_id", "state"),
        Index(
            "ix_jobs_leased",
            "lease_expires_at",
            sqlite_where=text("lease_expires_at IS NOT NULL"),
            postgresql_where=text("lease_expires_at IS NOT NULL"),
        ),
        Index(None, "device_key", "toolchain", "created_at"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    owner: Mapped[str] = mapped_column(String(100), server_default=LOCAL_OWNER)
    token_id: Mapped[str | None] = mapped_column(String(40))
    group_name: Mapped[str | None] = mapped_column(String(200))
    model_digest: Mapped[ModelDigest] = mapped_column(ForeignKey("models.digest"))
    request: Mapped[dict[str, Any]]
    priority: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    stage: Mapped[str | None] = mapped_column(String(16))
    failure: Mapped[dict[str, Any] | None]
    placement: Mapped[dict[str, Any] | None]
    target: Mapped[str | None] = mapped_column(Text)
    """Identities of the placement, once known, to look up the job's records."""
    device_key: Mapped[str | None] = mapped_column(Text)
    toolchain: Mapped[str | None] = mapped_column(Text)
    claims: Mapped[int] = mapped_column(default=0)
    """Number of claims, used in the lease. It never decreases, or an old lease could become valid again."""
    attempts: Mapped[int] = mapped_column(default=0)
    """Claims that count against the limit; those that were released are subtracted."""
    worker_id: Mapped[str | None] = mapped_column(Text)
    lease_expires_at: Mapped[datetime | None]
    trials_done: Mapped[int] = mapped_column(default=0)
    trials_planned: Mapped[int] = mapped_column(default=0)
    artifact_id: Mapped[str | None] = mapped_column(String(66))
    part_of: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"), index=True)
    """The job of several sizes that this one tunes a size of."""
    created_at: Mapped[datetime]
    trace_parent: Mapped[str | None] = mapped_column(String(64))
    waits_until: Mapped[datetime | None]
    """Earliest time of the next claim, for a job released for later."""
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class JobLabelRow(Base):
    """Labels of a job in a searchable form."""

    __tablename__ = "job_labels"
    __table_args__ = (Index(None, "name", "value"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    value: Mapped[str] = mapped_column(String(255))


class JobLogRow(Base):
    """End of the output of a job's engines."""

    __tablename__ = "job_logs"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int]
    """Attempt number of the lease of the last writer."""
    start: Mapped[int] = mapped_column(BigInteger)
    """Bytes of the log before ``content``."""
    size: Mapped[int] = mapped_column(BigInteger)
    content: Mapped[bytes] = mapped_column(LargeBinary)


class StageRow(Base):
    __tablename__ = "job_stages"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    stage: Mapped[str] = mapped_column(String(16), primary_key=True)
    attempt: Mapped[int]
    outcome: Mapped[dict[str, Any]]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime]


class TuningTaskRow(Base):
    __tablename__ = "tuning_tasks"
    __table_args__ = (Index(None, "workload_digest"), Index(None, "name", "workload_digest"))

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(Text)
    workload_digest: Mapped[WorkloadDigest] = mapped_column(DIGEST)
    workload_key: Mapped[str] = mapped_column(Text)
    description: Mapped[str] = mapped_column(Text)
    weight: Mapped[int]
    flop: Mapped[float]
    space_size: Mapped[int] = mapped_column(BigInteger)
    alternatives: Mapped[int | None]
    trials_planned: Mapped[int]
    effort_trials: Mapped[float | None]
    effort_seconds: Mapped[float | None]
    """Both null until the job's search has ended; infinite if the search space was exhausted."""


class WorkloadRow(Base):
    """A workload in its tuner's native form, if its key is not enough to rebuild it."""

    __tablename__ = "workloads"

    workload_digest: Mapped[WorkloadDigest] = mapped_column(DIGEST, primary_key=True)
    workload_key: Mapped[str] = mapped_column(Text)
    tuner: Mapped[str] = mapped_column(String(32))
    definition: Mapped[str] = mapped_column(Text)


class ExtractionRow(Base):
    """Tuning tasks that an engine extracted from a model, so that a plan needs no engine."""

    __tablename__ = "extractions"

    key_digest: Mapped[str] = mapped_column(DIGEST, primary_key=True)
    """Digest of everything that determines them: model, shapes, target, threads, toolchain, tuner, precision,
    options."""
    tasks: Mapped[list[Any]]
    created_at: Mapped[datetime]


class RecordRow(Base):
    """A measured record. Without foreign keys, as it outlives its job."""

    __tablename__ = "records"
    __table_args__ = (
        UniqueConstraint("job_id", "workload_digest", "schedule_digest"),
        Index("ix_records_lookup", "workload_digest", "target", "device_key", "toolchain", "latency"),
        Index("ix_records_history", "workload_digest", "target", "device_key", "toolchain", "id"),
        Index("ix_records_export", "tuner", "target", "device_key", "toolchain", "id"),
        Index(None, "job_id", "id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(SerialNumber, primary_key=True)
    job_id: Mapped[str] = mapped_column(String(40))
    workload_digest: Mapped[WorkloadDigest] = mapped_column(DIGEST)
    workload_key: Mapped[str] = mapped_column(Text)
    target: Mapped[str] = mapped_column(Text)
    device_key: Mapped[str] = mapped_column(Text)
    toolchain: Mapped[str] = mapped_column(Text)
    tuner: Mapped[str] = mapped_column(String(32))
    schedule_digest: Mapped[ScheduleDigest] = mapped_column(DIGEST)
    schedule: Mapped[str] = mapped_column(Text)
    latency: Mapped[float | None]
    """Mean of ``latencies``, used for ranking; null for a failed trial."""
    latencies: Mapped[list[Any]]
    error: Mapped[str | None] = mapped_column(String(32))
    error_message: Mapped[str | None] = mapped_column(Text)
    trial_number: Mapped[int]
    worker_id: Mapped[str] = mapped_column(Text)
    finished_at: Mapped[datetime]
    calibration: Mapped[float | None]
    """Seconds of the calibration kernel that was timed with the trial's batch."""


class ImportedRecordRow(Base):
    """An imported record. A table of its own, so that no lookup can take a claim for a measurement."""

    __tablename__ = "imported_records"
    __table_args__ = (
        UniqueConstraint(
            "owner",
            "workload_digest",
            "target",
            "device_key",
            "toolchain",
            "schedule_digest",
            name="uq_imported_records_schedule",
        ),
        Index(
            "ix_imported_records_candidates",
            "owner",
            "workload_digest",
            "target",
            "device_key",
            "toolchain",
            "tuner",
            "state",
            "latency",
        ),
        Index("ix_imported_records_export", "owner", "tuner", "target", "device_key", "toolchain", "state", "id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(SerialNumber, primary_key=True)
    owner: Mapped[str] = mapped_column(String(100))
    workload_digest: Mapped[WorkloadDigest] = mapped_column(DIGEST)
    workload_key: Mapped[str] = mapped_column(Text)
    target: Mapped[str] = mapped_column(Text)
    device_key: Mapped[str] = mapped_column(Text)
    toolchain: Mapped[str] = mapped_column(Text)
    tuner: Mapped[str] = mapped_column(String(32))
    schedule_digest: Mapped[ScheduleDigest] = mapped_column(DIGEST)
    schedule: Mapped[str] = mapped_column(Text)
    latency: Mapped[float | None]
    """Claimed mean of ``latencies``, which orders candidates; null for a claimed failure."""
    latencies: Mapped[list[Any]]
    error: Mapped[str | None] = mapped_column(String(32))
    finished_at: Mapped[datetime]
    imported_at: Mapped[datetime]
    state: Mapped[str] = mapped_column(String(16))
    message: Mapped[str | None] = mapped_column(Text)
    job_id: Mapped[str | None] = mapped_column(String(40))
    """The job that tried it."""


class EventRow(Base):
    __tablename__ = "job_events"
    __table_args__ = (Index(None, "job_id", "id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(SerialNumber, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(16))
    data: Mapped[dict[str, Any]]
    at: Mapped[datetime]


class ArtifactRow(Base):
    __tablename__ = "artifacts"
    __table_args__ = (Index("ix_artifacts_best", "model_digest", "target", "device_key", "published_median"),)

    id: Mapped[str] = mapped_column(String(66), primary_key=True)
    digest: Mapped[ArtifactDigest] = mapped_column(DIGEST, unique=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    model_digest: Mapped[ModelDigest] = mapped_column(ForeignKey("models.digest"))
    input_shapes: Mapped[dict[str, Any]]
    target: Mapped[str] = mapped_column(Text)
    device_key: Mapped[str] = mapped_column(Text)
    toolchain: Mapped[str] = mapped_column(Text)
    precision: Mapped[str] = mapped_column(String(16))
    bundle_format: Mapped[str] = mapped_column(String(16), server_default="shared")
    sizes: Mapped[list[Any] | None]
    """Null if the bundle has one size."""
    verified: Mapped[bool] = mapped_column(server_default=true())
    """False if it was built for a machine on which it could not be run."""
    report: Mapped[dict[str, Any]]
    published_median: Mapped[float | None]
    """Seconds of the published variant; null if it was not timed."""
    created_at: Mapped[datetime]
    deleted_at: Mapped[datetime | None]
    """Set at deletion: its bytes may be removed; the row is kept with the job's report."""


class WorkerRow(Base):
    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    hostname: Mapped[str] = mapped_column(Text)
    pid: Mapped[int]
    device: Mapped[dict[str, Any]]
    native_target: Mapped[dict[str, Any]]
    accelerators: Mapped[list[Any]] = mapped_column(server_default="[]")
    toolchains: Mapped[list[Any]]
    current_job: Mapped[str | None] = mapped_column(String(40))
    release: Mapped[str] = mapped_column(String(64), server_default="")
    """Release of the worker; empty for workers older than this column."""
    lock_place: Mapped[str] = mapped_column(String(64), server_default="")
    """Workers with the same place take turns at measuring."""
    foreign_cpus: Mapped[list[Any]] = mapped_column(server_default="[]")
    trackers: Mapped[list[Any] | None]
    """Null if any tracker is allowed."""
    clock_ahead: Mapped[float | None]
    """Seconds by which the host's clock was ahead of the database's at the last heartbeat."""
    started_at: Mapped[datetime]
    last_seen_at: Mapped[datetime] = mapped_column(index=True)


class SharedRoundRow(Base):
    """Trials of one workload that a running job offers to other workers; see ``storage.shared_rounds``."""

    __tablename__ = "shared_rounds"
    __table_args__ = (
        Index(None, "job_id", "state"),
        Index(
            "uq_shared_rounds_at_work",
            "job_id",
            "workload_digest",
            unique=True,
            sqlite_where=text("state IN ('open', 'claimed')"),
            postgresql_where=text("state IN ('open', 'claimed')"),
        ),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(SerialNumber, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    """Attempt of the lease under which the round was offered; rounds of older attempts are void."""
    state: Mapped[str] = mapped_column(String(16))
    workload_digest: Mapped[WorkloadDigest] = mapped_column(DIGEST)
    workload_key: Mapped[str] = mapped_column(Text)
    tuner: Mapped[str] = mapped_column(String(32))
    target: Mapped[str] = mapped_column(Text)
    device_key: Mapped[str] = mapped_column(Text)
    toolchain: Mapped[str] = mapped_column(Text)
    request: Mapped[dict[str, Any]]
    """Parameters of the engine request, except paths, which differ between workers."""
    trials: Mapped[int]
    first_trial: Mapped[int]
    seconds_limit: Mapped[float | None]
    lock_place: Mapped[str] = mapped_column(String(64))
    """Place of the offering worker: workers that take turns with it would gain nothing by helping."""
    known_to: Mapped[str | None] = mapped_column(Text)
    """Worker that searched the workload last, and can continue without a new start."""
    worker_id: Mapped[str | None] = mapped_column(Text)
    lease_expires_at: Mapped[datetime | None]
    opened_at: Mapped[datetime]
    seconds: Mapped[float | None]
    """Duration, without waiting for the device."""
    exhausted: Mapped[bool | None]
    default_latency: Mapped[float | None]
    failure: Mapped[dict[str, Any] | None]


class QuarantinedDeviceRow(Base):
    """A device behind an RPC tracker that failed a job, not used until a time."""

    __tablename__ = "quarantined_devices"

    id: Mapped[str] = mapped_column(String(255), primary_key=True)
    """``tracker/key/host:port``"""
    job_id: Mapped[str] = mapped_column(String(40))
    reason: Mapped[str] = mapped_column(Text)
    since: Mapped[datetime]
    until: Mapped[datetime]


class PeriodicTaskRow(Base):
    """A task that one of all workers runs periodically."""

    __tablename__ = "periodic_tasks"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    begun_at: Mapped[datetime]
    """Start of the last run."""


class IdentityRow(Base):
    """Identity of this database for blob stores; one row, number 1."""

    __tablename__ = "identity"

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    id: Mapped[str] = mapped_column(String(40))
    made_at: Mapped[datetime]


class IdempotencyKeyRow(Base):
    __tablename__ = "idempotency_keys"

    key_digest: Mapped[str] = mapped_column(DIGEST, primary_key=True)
    fingerprint: Mapped[str] = mapped_column(Text)
    answer: Mapped[str] = mapped_column(Text)
    """Id of what the first request created."""
    created_at: Mapped[datetime] = mapped_column(index=True)


class TokenRow(Base):
    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    secret_digest: Mapped[SecretDigest] = mapped_column(DIGEST, unique=True)
    """sha256 of the token's text, which is random and too long to guess."""
    name: Mapped[str] = mapped_column(String(200))
    owner: Mapped[str] = mapped_column(String(100), index=True)
    scopes: Mapped[list[Any]]
    quota: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class BrowserSessionRow(Base):
    """A one-time login link, and after its use the browser session."""

    __tablename__ = "browser_sessions"

    secret_digest: Mapped[SecretDigest] = mapped_column(DIGEST, primary_key=True)
    is_link: Mapped[bool]
    token_id: Mapped[str | None] = mapped_column(ForeignKey("tokens.id", ondelete="CASCADE"))
    """Null for the server's own token."""
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class WebhookRow(Base):
    __tablename__ = "webhooks"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    url: Mapped[str] = mapped_column(Text)
    secret: Mapped[str] = mapped_column(Text)


class WebhookDeliveryRow(Base):
    """Written in the transaction that ends the job, so that no notification is lost."""

    __tablename__ = "webhook_deliveries"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    attempts: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime]
    next_attempt_at: Mapped[datetime | None] = mapped_column(index=True)
    delivered_at: Mapped[datetime | None]
    last_status: Mapped[int | None]
    last_error: Mapped[str | None] = mapped_column(Text)


WITH_BLOBS = (ModelRow, ArtifactRow, DataSetRow)
"""Tables whose rows refer to blobs by ``digest`` until their ``deleted_at``."""
