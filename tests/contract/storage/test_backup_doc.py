"""What docs/how-to/operations.md says of PostgreSQL and S3, done as it says to real servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from storage import artifacts, jobs, models
from storage.blobs import stores
from storage.database import Database, migrate
from storage.settings import StorageSettings
from tests.support.servers import postgresql
from tests.support.servers.postgresql import PostgreSQL
from tests.support.storage import buckets
from tests.support.storage.buckets import Bucket
from tests.support.storage.factories import FACTS, NOW, add_job, artifact

ROOT = Path(__file__).parents[3]


def commands() -> tuple[str, str]:
    """Those that back up, and those that restore."""
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text()
    section = page.partition("### PostgreSQL and S3\n")[2].partition("\n## ")[0]
    first, second = re.findall(r"^```\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    return first, second


def do(script: str, settings: StorageSettings, folder: Path) -> None:
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    tunesmith = programs / "tunesmith"
    tunesmith.write_text(f'#!/bin/sh\nexec {sys.executable} -m tunesmith "$@"\n')
    tunesmith.chmod(0o755)
    environment = buckets.environment(settings)
    environment["PATH"] = f"{programs}:{postgresql.binaries()}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def two_urls(postgresql_server: PostgreSQL) -> Iterator[tuple[str, str]]:
    """Of empty databases."""
    names = [postgresql_server.create_database() for _ in range(2)]
    yield postgresql_server.url(names[0]), postgresql_server.url(names[1])
    for name in names:
        postgresql_server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def test_a_service_moves_as_the_page_says(two_urls: tuple[str, str], bucket: Bucket, tmp_path: Path) -> None:
    old = bucket.settings(tmp_path / "old", database_url=two_urls[0])
    database, blobs = Database(old.database_url), stores.open_store(old)
    migrate(database)
    model, bundle = blobs.put([b"model" * 1000]), blobs.put([b"bundle" * 1000])
    with database.transaction() as session:
        models.add(session, digest=model.digest, name="m", size_bytes=model.size_bytes, facts=FACTS, now=NOW)
        job = add_job(session, model_digest=model.digest)
        jobs.request_cancel(session, job.id, now=NOW)
        artifacts.add(session, replace(artifact(job.id), id="a-1", digest=bundle.digest, model_digest=model.digest))
    database.close()
    backup, restore = commands()
    do(backup, old, tmp_path)
    do(backup, old, tmp_path)  # a second time: only what came since

    new = bucket.settings(
        tmp_path / "new", database_url=two_urls[1], blob_url=bucket.url().replace("a/prefix", "elsewhere")
    )
    do(restore, new, tmp_path)
    database, blobs = Database(new.database_url), stores.open_store(new)
    migrate(database)
    with database.reading() as session:
        assert artifacts.get(session, "a-1").digest == bundle.digest
        assert jobs.get(session, job.id).request.model_digest == model.digest
    database.close()
    with blobs.open(bundle.digest) as file:
        assert file.read() == b"bundle" * 1000
    assert blobs.exists(model.digest)
