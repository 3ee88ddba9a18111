"""Owners, tokens and webhooks"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

JSON_DOCUMENT = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    _add_tokens()
    _add_owners()
    _add_webhooks()


def _add_tokens() -> None:
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
    with op.batch_alter_table("tokens", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tokens_owner"), ["owner"], unique=False)

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
    with op.batch_alter_table("browser_sessions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_browser_sessions_expires_at"), ["expires_at"], unique=False)


def _add_owners() -> None:
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
    with op.batch_alter_table("model_owners", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_model_owners_owner"), ["owner"], unique=False)
    # Whatever there was before is the service's own token's.
    op.execute(
        "INSERT INTO model_owners (model_digest, owner, created_at) SELECT digest, 'local', created_at FROM models"
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("owner", sa.String(length=100), server_default="local", nullable=False))
        batch_op.add_column(sa.Column("token_id", sa.String(length=40), nullable=True))
        batch_op.add_column(sa.Column("group_name", sa.String(length=200), nullable=True))
        batch_op.create_index(batch_op.f("ix_jobs_group_name_created_at"), ["group_name", "created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_owner_created_at"), ["owner", "created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_token_id_state"), ["token_id", "state"], unique=False)


def _add_webhooks() -> None:
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
    with op.batch_alter_table("webhook_deliveries", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_webhook_deliveries_job_id"), ["job_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_webhook_deliveries_next_attempt_at"), ["next_attempt_at"], unique=False)

    op.create_table(
        "webhooks",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_webhooks_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_webhooks")),
    )
