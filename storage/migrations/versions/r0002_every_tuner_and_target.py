"""Every tuner and target"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SERIAL_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON_DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "extractions",
        sa.Column("key_digest", sa.String(length=64), nullable=False),
        sa.Column("tasks", JSON_DOCUMENT, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key_digest", name=op.f("pk_extractions")),
    )
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
        "workloads",
        sa.Column("workload_digest", sa.String(length=64), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("tuner", sa.String(length=32), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("workload_digest", name=op.f("pk_workloads")),
    )
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("bundle_format", sa.String(length=16), server_default="shared", nullable=False))
        batch_op.add_column(sa.Column("verified", sa.Boolean(), server_default=sa.true(), nullable=False))
        batch_op.alter_column("published_median", existing_type=sa.DOUBLE(), nullable=True)

    with op.batch_alter_table("tuning_tasks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("effort_trials", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("effort_seconds", sa.Double(), nullable=True))
        batch_op.create_index(batch_op.f("ix_tuning_tasks_workload_digest"), ["workload_digest"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_tuning_tasks_name_workload_digest"), ["name", "workload_digest"], unique=False
        )

    with op.batch_alter_table("records", schema=None) as batch_op:
        batch_op.create_index(
            "ix_records_history", ["workload_digest", "target", "device_key", "toolchain", "id"], unique=False
        )
        batch_op.create_index("ix_records_export", ["tuner", "target", "device_key", "toolchain", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_records_job_id_id"), ["job_id", "id"], unique=False)

    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.add_column(sa.Column("accelerators", JSON_DOCUMENT, server_default="[]", nullable=False))
