"""Imported records have a table of their own, with their owner and what became of them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0101"
down_revision = "0100"
branch_labels = None
depends_on = None

SERIAL_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON_DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "imported_records",
        sa.Column("id", SERIAL_NUMBER, nullable=False),
        sa.Column("owner", sa.String(length=100), nullable=False),
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
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("job_id", sa.String(length=40), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_imported_records")),
        sa.UniqueConstraint(
            "owner",
            "workload_digest",
            "target",
            "device_key",
            "toolchain",
            "schedule_digest",
            name="uq_imported_records_schedule",
        ),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("imported_records") as batch_op:
        batch_op.create_index(
            "ix_imported_records_candidates",
            ["owner", "workload_digest", "target", "device_key", "toolchain", "tuner", "state", "latency"],
        )
        batch_op.create_index(
            "ix_imported_records_export", ["owner", "tuner", "target", "device_key", "toolchain", "state", "id"]
        )
    _move()


def _move() -> None:
    """Move the imported records, which belong to nobody so far, to the local owner.

    Efforts that counted them are forgotten, so these tasks are searched again.
    """
    op.execute("""
        INSERT INTO imported_records (
            owner, imported_at, state, workload_digest, workload_key, target, device_key, toolchain, tuner,
            schedule_digest, schedule, latency, latencies, error, finished_at
        )
        SELECT
            'local', finished_at, 'untried', workload_digest, workload_key, target, device_key, toolchain, tuner,
            schedule_digest, schedule, latency, latencies, error, finished_at
        FROM records WHERE job_id LIKE 'imported:%' ORDER BY id
    """)
    op.execute("""
        UPDATE tuning_tasks SET effort_trials = NULL, effort_seconds = NULL
        WHERE workload_digest IN (SELECT workload_digest FROM records WHERE job_id LIKE 'imported:%')
    """)
    op.execute("DELETE FROM records WHERE job_id LIKE 'imported:%'")
