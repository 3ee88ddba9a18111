"""The schema of the first release; revisions before 0100 were never released"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0100"
down_revision = None
branch_labels = None
depends_on = None

SERIAL_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON_DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "periodic_tasks",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_periodic_tasks")),
    )
    op.create_table(
        "extractions",
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("tasks", JSON_DOCUMENT, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key_digest", name=op.f("pk_extractions")),
    )
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
        "identity",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_identity")),
    )
    op.create_table(
        "models",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=66), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("facts", JSON_DOCUMENT, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_models")),
        sa.UniqueConstraint("id", name=op.f("uq_models_id")),
    )
    with op.batch_alter_table("models") as batch_op:
        batch_op.create_index(batch_op.f("ix_models_created_at_id"), ["created_at", "id"])

    op.create_table(
        "quarantined_devices",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quarantined_devices")),
    )
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
        sa.Column("calibration", sa.Double(), nullable=True),
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
        batch_op.create_index("ix_records_export", ["tuner", "target", "device_key", "toolchain", "id"])
        batch_op.create_index("ix_records_history", ["workload_digest", "target", "device_key", "toolchain", "id"])
        batch_op.create_index(batch_op.f("ix_records_job_id_id"), ["job_id", "id"])
        batch_op.create_index("ix_records_lookup", ["workload_digest", "target", "device_key", "toolchain", "latency"])

    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("secret_digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("owner", sa.String(length=100), nullable=False),
        sa.Column("scopes", JSON_DOCUMENT, nullable=False),
        sa.Column("quota", JSON_DOCUMENT, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("secret_digest", name=op.f("uq_tokens_secret_digest")),
    )
    with op.batch_alter_table("tokens") as batch_op:
        batch_op.create_index(batch_op.f("ix_tokens_owner"), ["owner"])

    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("device", JSON_DOCUMENT, nullable=False),
        sa.Column("native_target", JSON_DOCUMENT, nullable=False),
        sa.Column("accelerators", JSON_DOCUMENT, server_default="[]", nullable=False),
        sa.Column("toolchains", JSON_DOCUMENT, nullable=False),
        sa.Column("current_job", sa.String(length=40), nullable=True),
        sa.Column("release", sa.String(length=64), server_default="", nullable=False),
        sa.Column("lock_place", sa.String(length=64), server_default="", nullable=False),
        sa.Column("foreign_cpus", JSON_DOCUMENT, server_default="[]", nullable=False),
        sa.Column("trackers", JSON_DOCUMENT, nullable=True),
        sa.Column("clock_ahead", sa.Double(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    with op.batch_alter_table("workers") as batch_op:
        batch_op.create_index(batch_op.f("ix_workers_last_seen_at"), ["last_seen_at"])

    op.create_table(
        "workloads",
        sa.Column("workload_digest", sa.String(length=64), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("tuner", sa.String(length=32), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("workload_digest", name=op.f("pk_workloads")),
    )
    op.create_table(
        "browser_sessions",
        sa.Column("secret_digest", sa.String(length=64), nullable=False),
        sa.Column("is_link", sa.Boolean(), nullable=False),
        sa.Column("token_id", sa.String(length=40), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_browser_sessions_token_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("secret_digest", name=op.f("pk_browser_sessions")),
    )
    with op.batch_alter_table("browser_sessions") as batch_op:
        batch_op.create_index(batch_op.f("ix_browser_sessions_expires_at"), ["expires_at"])

    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner", sa.String(length=100), server_default="local", nullable=False),
        sa.Column("token_id", sa.String(length=40), nullable=True),
        sa.Column("group_name", sa.String(length=200), nullable=True),
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
        sa.Column("trace_parent", sa.String(length=64), nullable=True),
        sa.Column("waits_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["model_digest"], ["models.digest"], name=op.f("fk_jobs_model_digest")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_created_at_id"), ["created_at", "id"])
        batch_op.create_index(
            batch_op.f("ix_jobs_device_key_toolchain_created_at"), ["device_key", "toolchain", "created_at"]
        )
        batch_op.create_index(batch_op.f("ix_jobs_group_name_created_at"), ["group_name", "created_at"])
        batch_op.create_index(batch_op.f("ix_jobs_model_digest_created_at"), ["model_digest", "created_at"])
        batch_op.create_index(batch_op.f("ix_jobs_owner_created_at"), ["owner", "created_at"])
        batch_op.create_index(batch_op.f("ix_jobs_state_created_at"), ["state", "created_at"])
        batch_op.create_index(batch_op.f("ix_jobs_owner_started_at"), ["owner", "started_at"])
        batch_op.create_index(
            batch_op.f("ix_jobs_state_priority_owner_created_at_id"),
            ["state", "priority", "owner", "created_at", "id"],
        )
        batch_op.create_index(batch_op.f("ix_jobs_token_id_state"), ["token_id", "state"])
        batch_op.create_index(
            "ix_jobs_leased",
            ["lease_expires_at"],
            sqlite_where=sa.text("lease_expires_at IS NOT NULL"),
            postgresql_where=sa.text("lease_expires_at IS NOT NULL"),
        )

    op.create_table(
        "model_owners",
        sa.Column("model_digest", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_digest"], ["models.digest"], name=op.f("fk_model_owners_model_digest"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("model_digest", "owner", name=op.f("pk_model_owners")),
    )
    with op.batch_alter_table("model_owners") as batch_op:
        batch_op.create_index(batch_op.f("ix_model_owners_owner"), ["owner"])

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
        sa.Column("bundle_format", sa.String(length=16), server_default="shared", nullable=False),
        sa.Column("verified", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("report", JSON_DOCUMENT, nullable=False),
        sa.Column("published_median", sa.Double(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_artifacts_job_id")),
        sa.ForeignKeyConstraint(["model_digest"], ["models.digest"], name=op.f("fk_artifacts_model_digest")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sa.UniqueConstraint("digest", name=op.f("uq_artifacts_digest")),
    )
    with op.batch_alter_table("artifacts") as batch_op:
        batch_op.create_index("ix_artifacts_best", ["model_digest", "target", "device_key", "published_median"])
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
        "job_logs",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_logs_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_logs")),
    )
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
        "shared_rounds",
        sa.Column("id", SERIAL_NUMBER, nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("workload_digest", sa.String(length=64), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("tuner", sa.String(length=32), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("device_key", sa.Text(), nullable=False),
        sa.Column("toolchain", sa.Text(), nullable=False),
        sa.Column("request", JSON_DOCUMENT, nullable=False),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("first_trial", sa.Integer(), nullable=False),
        sa.Column("seconds_limit", sa.Double(), nullable=True),
        sa.Column("lock_place", sa.String(length=64), nullable=False),
        sa.Column("known_to", sa.Text(), nullable=True),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("exhausted", sa.Boolean(), nullable=True),
        sa.Column("default_latency", sa.Double(), nullable=True),
        sa.Column("failure", JSON_DOCUMENT, nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_shared_rounds_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shared_rounds")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("shared_rounds") as batch_op:
        batch_op.create_index(batch_op.f("ix_shared_rounds_job_id_state"), ["job_id", "state"])
        batch_op.create_index(
            "uq_shared_rounds_at_work",
            ["job_id", "workload_digest"],
            unique=True,
            sqlite_where=sa.text("state IN ('open', 'claimed')"),
            postgresql_where=sa.text("state IN ('open', 'claimed')"),
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
        sa.Column("alternatives", sa.Integer(), nullable=True),
        sa.Column("trials_planned", sa.Integer(), nullable=False),
        sa.Column("effort_trials", sa.Double(), nullable=True),
        sa.Column("effort_seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_tuning_tasks_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "position", name=op.f("pk_tuning_tasks")),
    )
    with op.batch_alter_table("tuning_tasks") as batch_op:
        batch_op.create_index(batch_op.f("ix_tuning_tasks_name_workload_digest"), ["name", "workload_digest"])
        batch_op.create_index(batch_op.f("ix_tuning_tasks_workload_digest"), ["workload_digest"])

    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_status", sa.Integer(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_webhook_deliveries_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    with op.batch_alter_table("webhook_deliveries") as batch_op:
        batch_op.create_index(batch_op.f("ix_webhook_deliveries_job_id"), ["job_id"])
        batch_op.create_index(batch_op.f("ix_webhook_deliveries_next_attempt_at"), ["next_attempt_at"])

    op.create_table(
        "webhooks",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_webhooks_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_webhooks")),
    )
