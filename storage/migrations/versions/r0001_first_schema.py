"""First schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SERIAL_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON_DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key_digest", name=op.f("pk_idempotency_keys")),
    )
    with op.batch_alter_table("idempotency_keys") as batch_op:
        batch_op.create_index(batch_op.f("ix_idempotency_keys_created_at"), ["created_at"])

    op.create_table(
        "models",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=66), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("facts", JSON_DOCUMENT, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_models")),
        sa.UniqueConstraint("id", name=op.f("uq_models_id")),
    )
    with op.batch_alter_table("models") as batch_op:
        batch_op.create_index(batch_op.f("ix_models_created_at_id"), ["created_at", "id"])

    op.create_table(
        "records",
        sa.Column("id", SERIAL_NUMBER, nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("workload_digest", sa.String(length=64), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("device_key", sa.Text(), nullable=False),
        sa.Column("toolchain", sa.Text(), nullable=False),
        sa.Column("tuner", sa.String(length=32), nullable=False),
        sa.Column("schedule_digest", sa.String(length=64), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("latency", sa.Double(), nullable=True),
        sa.Column("latencies", JSON_DOCUMENT, nullable=False),
        sa.Column("error", sa.String(length=32), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("trial_number", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_records")),
        sa.UniqueConstraint(
            "job_id",
            "workload_digest",
            "schedule_digest",
            name=op.f("uq_records_job_id_workload_digest_schedule_digest"),
        ),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("records") as batch_op:
        batch_op.create_index(
            "ix_records_lookup", ["workload_digest", "target", "device_key", "toolchain", "latency"], unique=False
        )

    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("device", JSON_DOCUMENT, nullable=False),
        sa.Column("native_target", JSON_DOCUMENT, nullable=False),
        sa.Column("toolchains", JSON_DOCUMENT, nullable=False),
        sa.Column("current_job", sa.String(length=40), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    with op.batch_alter_table("workers") as batch_op:
        batch_op.create_index(batch_op.f("ix_workers_last_seen_at"), ["last_seen_at"])

    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("model_digest", sa.String(length=64), nullable=False),
        sa.Column("request", JSON_DOCUMENT, nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=True),
        sa.Column("failure", JSON_DOCUMENT, nullable=True),
        sa.Column("placement", JSON_DOCUMENT, nullable=True),
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("device_key", sa.Text(), nullable=True),
        sa.Column("toolchain", sa.Text(), nullable=True),
        sa.Column("claims", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("trials_done", sa.Integer(), nullable=False),
        sa.Column("trials_planned", sa.Integer(), nullable=False),
        sa.Column("artifact_id", sa.String(length=66), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["model_digest"], ["models.digest"], name=op.f("fk_jobs_model_digest")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_created_at_id"), ["created_at", "id"])
        batch_op.create_index(
            batch_op.f("ix_jobs_model_digest_created_at"), ["model_digest", "created_at"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_jobs_state_created_at"), ["state", "created_at"])

    op.create_table(
        "artifacts",
        sa.Column("id", sa.String(length=66), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("model_digest", sa.String(length=64), nullable=False),
        sa.Column("input_shapes", JSON_DOCUMENT, nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("device_key", sa.Text(), nullable=False),
        sa.Column("toolchain", sa.Text(), nullable=False),
        sa.Column("precision", sa.String(length=16), nullable=False),
        sa.Column("report", JSON_DOCUMENT, nullable=False),
        sa.Column("published_median", sa.Double(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_artifacts_job_id")),
        sa.ForeignKeyConstraint(["model_digest"], ["models.digest"], name=op.f("fk_artifacts_model_digest")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sa.UniqueConstraint("digest", name=op.f("uq_artifacts_digest")),
    )
    with op.batch_alter_table("artifacts") as batch_op:
        batch_op.create_index(
            "ix_artifacts_best", ["model_digest", "target", "device_key", "published_median"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_artifacts_job_id"), ["job_id"])

    op.create_table(
        "job_events",
        sa.Column("id", SERIAL_NUMBER, nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("data", JSON_DOCUMENT, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_events_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_events")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("job_events") as batch_op:
        batch_op.create_index(batch_op.f("ix_job_events_job_id_id"), ["job_id", "id"])

    op.create_table(
        "job_labels",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_labels_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "name", name=op.f("pk_job_labels")),
    )
    with op.batch_alter_table("job_labels") as batch_op:
        batch_op.create_index(batch_op.f("ix_job_labels_name_value"), ["name", "value"])

    op.create_table(
        "job_stages",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("outcome", JSON_DOCUMENT, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_stages_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "stage", name=op.f("pk_job_stages")),
    )
    op.create_table(
        "tuning_tasks",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("workload_digest", sa.String(length=64), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("flop", sa.Double(), nullable=False),
        sa.Column("space_size", sa.BigInteger(), nullable=False),
        sa.Column("trials_planned", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_tuning_tasks_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "position", name=op.f("pk_tuning_tasks")),
    )
