"""A next revision of the schema, which exists only in tests: what a later release will bring."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage.migrations import running

BASELINE = "0103"
NEXT = "0104"
_REVISION = '''
"""Every job has a size, and sizes have a table"""

import sqlalchemy as sa
from alembic import op

revision = "{next}"
down_revision = "{baseline}"


def upgrade() -> None:
    op.create_table("sizes", sa.Column("name", sa.String(8), primary_key=True))
    op.execute("INSERT INTO sizes (name) VALUES ('small')")
    # Recreates the table on SQLite, to which others refer.
    with op.batch_alter_table("jobs", recreate="auto") as batch:
        batch.add_column(sa.Column("size", sa.String(8), nullable=False, server_default="small"))
        batch.create_foreign_key("fk_jobs_size", "sizes", ["size"], ["name"])
        batch.create_index("ix_jobs_size", ["size"])
'''


def release_next(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on this process is of a release whose newest revision is ``NEXT``."""
    copy = folder / "next release"
    shutil.copytree(running.HERE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = _REVISION.format(next=NEXT, baseline=BASELINE)
    (copy / "versions" / f"r{NEXT}_sizes.py").write_text(text.lstrip())
    monkeypatch.setattr(running, "HERE", copy)
