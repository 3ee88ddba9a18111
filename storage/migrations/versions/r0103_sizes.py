"""Jobs of several sizes have parts, and their artifacts name the sizes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0103"
down_revision = "0102"
branch_labels = None
depends_on = None

JSON_DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.add_column(sa.Column("part_of", sa.String(length=40), nullable=True))
        batch_op.create_foreign_key(op.f("fk_jobs_part_of"), "jobs", ["part_of"], ["id"])
        batch_op.create_index(op.f("ix_jobs_part_of"), ["part_of"])
        batch_op.drop_index(op.f("ix_jobs_state_priority_owner_created_at_id"))
        batch_op.create_index(
            "ix_jobs_queue",
            ["state", "priority", "owner", "created_at", "id"],
            sqlite_where=sa.text("part_of IS NULL"),
            postgresql_where=sa.text("part_of IS NULL"),
        )
    with op.batch_alter_table("artifacts") as batch_op:
        batch_op.add_column(sa.Column("sizes", JSON_DOCUMENT, nullable=True))
