"""What workers run and reach, and how far their clocks are off"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

JSON_DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.add_column(sa.Column("foreign_cpus", JSON_DOCUMENT, server_default="[]", nullable=False))
        batch_op.add_column(sa.Column("trackers", JSON_DOCUMENT, nullable=True))
        batch_op.add_column(sa.Column("clock_ahead", sa.Double(), nullable=True))
