"""Rounds of trials that several workers share, and what a worker's release is"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SERIAL_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON_DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
AT_WORK = "state IN ('open', 'claimed')"


def upgrade() -> None:
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
    with op.batch_alter_table("shared_rounds", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_shared_rounds_job_id_state"), ["job_id", "state"], unique=False)
        batch_op.create_index(
            "uq_shared_rounds_at_work",
            ["job_id", "workload_digest"],
            unique=True,
            sqlite_where=sa.text(AT_WORK),
            postgresql_where=sa.text(AT_WORK),
        )
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.add_column(sa.Column("release", sa.String(length=64), server_default="", nullable=False))
        batch_op.add_column(sa.Column("lock_place", sa.String(length=64), server_default="", nullable=False))
