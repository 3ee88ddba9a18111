"""The end of each job's engine log, and indexes for who waits for a message"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
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
    op.create_index(op.f("ix_jobs_state_published_at"), "jobs", ["state", "published_at"])
    op.create_index(op.f("ix_jobs_token_id_state_published_at"), "jobs", ["token_id", "state", "published_at"])
    op.drop_index(op.f("ix_jobs_token_id_state"), table_name="jobs")
