"""Alternatives of tuning tasks"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tuning_tasks", sa.Column("alternatives", sa.Integer(), nullable=True))
