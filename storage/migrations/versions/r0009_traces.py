"""The trace that a job's attempts go on with, and the latest jobs of a device"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("trace_parent", sa.String(length=64), nullable=True))
    op.create_index(op.f("ix_jobs_device_key_toolchain_created_at"), "jobs", ["device_key", "toolchain", "created_at"])
