"""A backup of a service that is at work, and the service that is made of it."""

from __future__ import annotations

import json
import os
import sqlite3
import tarfile
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from domain import errors
from domain.blobs import BlobStore
from domain.data_sets import DataFacts
from domain.jobs import EventKind
from domain.tokens import Principal
from domain.webhooks import Webhook
from storage import artifacts, backups, data_sets, events, jobs, models, queue, records, webhooks
from storage.blobs import files, ownership, stores
from storage.blobs.local import LocalBlobStore
from storage.database import Database, migrate
from storage.settings import StorageSettings
from tests.support.storage import revisions
from tests.support.storage.buckets import Bucket
from tests.support.storage.empty import put_empty_database
from tests.support.storage.factories import FACTS, NOW, add_job, artifact, record

LATER = NOW + timedelta(days=1)
SAVED = Path(__file__).parents[2] / "support/storage/saved"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A service with a model, an artifact and a record."""
    home = tmp_path / "home"
    home.mkdir()
    put_empty_database(home)
    settings = StorageSettings(home=home)
    fill(settings)
    return home


def fill(settings: StorageSettings) -> None:
    blobs, database = stores.open_store(settings), Database(settings.database_url)
    model, bundle = blobs.put([b"model" * 1000]), blobs.put([b"bundle" * 1000])
    rows = blobs.put([b"rows" * 1000])
    blobs.put([b"nothing names this"])
    with database.transaction() as session:
        models.add(session, digest=model.digest, name="m", size_bytes=model.size_bytes, facts=FACTS, now=NOW)
        job = add_job(session, model_digest=model.digest)
        jobs.request_cancel(session, job.id, now=NOW)
        made = replace(artifact(job.id), id="a-1", digest=bundle.digest, model_digest=model.digest)
        artifacts.add(session, made)
        records.add(session, [record("dense", 1e-3, job_id=job.id)])
        facts = DataFacts(arrays=(), rows=1)
        data_sets.add(session, digest=rows.digest, name="val", owner="ann", size_bytes=4000, facts=facts, now=NOW)
    database.close()


def check(settings: StorageSettings) -> None:
    database = Database(settings.database_url)
    migrate(database)
    blobs = stores.open_store(settings)
    with database.reading() as session:
        (model,), _ = models.page(session, limit=10)
        (made,), _ = artifacts.page(session, limit=10)
        assert len(records.of_job(session, made.job_id)) == 1
        rows = data_sets.get(session, "val", Principal(owner="ann", scopes=frozenset()))
    database.close()
    with blobs.open(model.digest) as file, blobs.open(made.digest) as bundle:
        assert (file.read(), bundle.read()) == (b"model" * 1000, b"bundle" * 1000)
    with blobs.open(rows.digest) as file:
        assert file.read() == b"rows" * 1000


def back_up(home: Path, target: Path) -> backups.Backup:
    settings = StorageSettings(home=home)
    return backups.create(settings, stores.open_store(settings), target)


def put_back(home: Path, source: Path) -> backups.Backup:
    settings = StorageSettings(home=home)
    backups.make_home(settings)
    return backups.restore(settings, stores.open_store(settings), source)


@pytest.mark.parametrize("name", ["backup.tar", "backup"])
def test_what_is_backed_up_can_be_restored(home: Path, tmp_path: Path, name: str) -> None:
    made = back_up(home, tmp_path / name)
    assert (made.blobs, made.size_bytes, made.missing) == (3, 15_000, [])
    restored = put_back(tmp_path / "new", tmp_path / name)
    assert (restored.blobs, restored.size_bytes) == (3, 15_000)
    check(StorageSettings(home=tmp_path / "new"))
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["blobs", "db.sqlite3"]


@pytest.fixture
def busy(home: Path) -> dict[str, str]:
    """Jobs of the service by their state, and a webhook message that was not sent."""
    database = Database(StorageSettings(home=home).database_url)
    with database.transaction() as session:
        (model,), _ = models.page(session, limit=10)
        made = {state: add_job(session, model_digest=model.digest).id for state in ("queued", "running", "canceling")}
        for state in ("running", "canceling"):
            assert jobs.claim(session, made[state], worker_id="w", now=NOW, lease_seconds=60, max_attempts=3)
        jobs.request_cancel(session, made["canceling"], now=NOW)
        made["ended"] = add_job(session, model_digest=model.digest).id
        for job_id in made.values():
            webhooks.attach(session, job_id, Webhook(url="http://example.com/", secret="whsec_x"))
        jobs.request_cancel(session, made["ended"], now=NOW)
        assert [jobs.get(session, job_id).state for job_id in made.values()][:3] == ["queued", "running", "canceling"]
        assert len(webhooks.due(session, now=LATER, limit=10)) == 1
    database.close()
    return made


@pytest.mark.parametrize("paused", [False, True])
def test_a_paused_copy_starts_and_sends_nothing(home: Path, busy: dict[str, str], tmp_path: Path, paused: bool) -> None:
    back_up(home, tmp_path / "backup.tar")
    # Left by a restore that was interrupted; SQLite would apply the log to the new file.
    new = tmp_path / "new"
    new.mkdir()
    (new / ".db.sqlite3.restored-wal").write_bytes(b"left over")
    settings = StorageSettings(home=new)
    done = backups.restore(settings, stores.open_store(settings), tmp_path / "backup.tar", paused=paused)
    assert done.paused == (backups.Paused(jobs=3, messages=1) if paused else None)
    assert sorted(path.name for path in new.iterdir()) == ["blobs", "db.sqlite3"]
    database = Database(settings.database_url)
    rules = queue.Rules(now=LATER, judging=LATER, max_attempts=3)
    with database.transaction() as session:
        startable = list(queue.in_order(session, rules))
        due = webhooks.due(session, now=LATER, limit=10)
        assert (len(startable), len(due)) == ((0, 0) if paused else (3, 1))
        if paused:
            states = {jobs.get(session, job_id).state for job_id in busy.values()}
            assert states == {"canceled"}
            notes = events.of_kinds(session, busy["running"], [EventKind.NOTE], 10)
            assert "--paused" in notes[0].data["message"]
            assert webhooks.deliveries(session, busy["running"]) == []
            assert "--paused" in str(webhooks.deliveries(session, busy["ended"])[0].last_error)
            webhooks.resend(session, busy["ended"], now=LATER)
            assert len(webhooks.due(session, now=LATER, limit=10)) == 1
    database.close()


def test_a_backup_is_its_owners_alone(home: Path, tmp_path: Path) -> None:
    back_up(home, tmp_path / "backup.tar")
    with tarfile.open(tmp_path / "backup.tar") as archive:
        assert {member.mode & 0o077 for member in archive} == {0}


def test_nobody_else_reads_a_copy(home: Path, tmp_path: Path) -> None:
    usual = os.umask(0o022)
    try:
        back_up(home, tmp_path / "backup.tar")
        back_up(home, tmp_path / "backup")
        put_back(tmp_path / "new", tmp_path / "backup.tar")
    finally:
        os.umask(usual)
    made = ("backup.tar", "backup", "backup/db.sqlite3", "new", "new/db.sqlite3")
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in made]
    assert modes == [0o600, 0o700, 0o600, 0o700, 0o600]


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_what_is_left_of_another_database_is_in_the_way(home: Path, tmp_path: Path, ending: str) -> None:
    """SQLite would show what the log holds, not what was restored."""
    back_up(home, tmp_path / "backup.tar")
    left = tmp_path / "new" / f"db.sqlite3{ending}"
    left.parent.mkdir()
    left.write_bytes(b"of the old database")
    with pytest.raises(errors.ConfigurationError, match=left.name):
        put_back(tmp_path / "new", tmp_path / "backup.tar")
    assert not (left.parent / "db.sqlite3").exists()
    left.unlink()
    left.with_name(".db.sqlite3.restored").write_bytes(b"of a restore that was cut off")
    put_back(tmp_path / "new", tmp_path / "backup.tar")
    check(StorageSettings(home=tmp_path / "new"))


def test_a_database_that_is_written_to_is_copied_whole(home: Path, tmp_path: Path) -> None:
    """Each transaction writes two rows: a copy never has one of them."""
    database, stop = Database(f"sqlite:///{home / 'db.sqlite3'}"), threading.Event()
    written = []

    def write() -> None:
        while not stop.is_set():
            with database.transaction() as session:
                name = f"pair {len(written)}"
                records.add(session, [record(name, 1.0, schedule=each, job_id=name) for each in ("a", "b")])
                written.append(name)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            back_up(home, tmp_path / f"backup-{number}")
            with sqlite3.connect(tmp_path / f"backup-{number}" / "db.sqlite3") as copy:
                pairs = copy.execute(
                    "SELECT count(*) FROM records WHERE job_id LIKE 'pair%' GROUP BY job_id"
                ).fetchall()
            copy.close()
            assert {count for (count,) in pairs} <= {2}
    finally:
        stop.set()
        writer.join()
        database.close()
    assert len(written) > 10


def test_bytes_that_are_gone_or_wrong_are_named(home: Path, tmp_path: Path) -> None:
    store = LocalBlobStore(home / "blobs")
    with sqlite3.connect(home / "db.sqlite3") as connection:
        (bundle,) = connection.execute("SELECT digest FROM artifacts").fetchone()
        (model,) = connection.execute("SELECT digest FROM models WHERE name = 'm'").fetchone()
    connection.close()
    store.delete(bundle)
    os.chmod(store.path(model), 0o600)  # noqa: PTH101
    store.path(model).write_bytes(b"wrong")
    made = back_up(home, tmp_path / "backup.tar")
    assert (made.blobs, sorted(made.missing)) == (1, sorted([bundle, model]))
    assert put_back(tmp_path / "new", tmp_path / "backup.tar").missing == made.missing


def test_a_home_with_a_database_is_not_overwritten(home: Path, tmp_path: Path) -> None:
    back_up(home, tmp_path / "backup.tar")
    with pytest.raises(errors.ConfigurationError, match="already exists"):
        put_back(home, tmp_path / "backup.tar")
    with pytest.raises(errors.ConfigurationError, match="already exists"):
        back_up(home, tmp_path / "backup.tar")


def wrong_blob(folder: Path) -> None:
    (next((folder / "blobs").glob("??/*"))).write_bytes(b"other bytes")


def lost_blob(folder: Path) -> None:
    (next((folder / "blobs").glob("??/*"))).unlink()


def torn_database(folder: Path) -> None:
    with (folder / "db.sqlite3").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)


def newer_format(folder: Path) -> None:
    about = json.loads((folder / "backup.json").read_text())
    (folder / "backup.json").write_text(json.dumps(about | {"format": 99}))


def no_manifest(folder: Path) -> None:
    (folder / "backup.json").unlink()


@pytest.mark.parametrize("spoil", [wrong_blob, lost_blob, torn_database, newer_format, no_manifest])
def test_a_spoiled_backup_makes_no_service(home: Path, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    folder = tmp_path / "backup"
    back_up(home, folder)
    spoil(folder)
    with pytest.raises(errors.InvalidRequest if spoil is not wrong_blob else errors.BlobDamaged):
        put_back(tmp_path / "new", folder)
    assert not (tmp_path / "new" / "db.sqlite3").exists()


@pytest.mark.parametrize("content", [b"", b"no tar", None])
def test_what_is_no_backup(tmp_path: Path, content: bytes | None) -> None:
    source = tmp_path / "backup.tar"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(errors.InvalidRequest, match="is not a backup"):
        put_back(tmp_path / "new", source)


def test_a_tar_that_reaches_out_writes_nothing(tmp_path: Path) -> None:
    source, outside = tmp_path / "backup.tar", tmp_path / "outside"
    with tarfile.open(source, "w") as archive:
        member = tarfile.TarInfo("../outside")
        archive.addfile(member)
    with pytest.raises(errors.InvalidRequest, match="is not a backup"):
        put_back(tmp_path / "new", source)
    assert not outside.exists()


def test_a_backup_of_an_older_release_is_restored_and_upgraded(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(home, tmp_path / "backup.tar")
    revisions.release_next(monkeypatch, tmp_path)
    restored = tmp_path / "restored"
    put_back(restored, tmp_path / "backup.tar")
    check(StorageSettings(home=restored))
    connection = sqlite3.connect(restored / "db.sqlite3")
    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(revisions.NEXT,)]
    connection.close()


def test_a_database_of_an_older_release_can_be_backed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "old"
    home.mkdir()
    connection = sqlite3.connect(home / "db.sqlite3")
    connection.executescript((SAVED / f"{revisions.BASELINE}.sql").read_text())
    connection.close()
    revisions.release_next(monkeypatch, tmp_path)
    made = back_up(home, tmp_path / "backup.tar")
    assert (made.blobs, len(made.missing)) == (0, 4)  # its rows name bytes that were never there


@pytest.mark.parametrize("has_lost_its_store", [False, True])
def test_a_restored_service_goes_on_with_its_store(bucket: Bucket, tmp_path: Path, has_lost_its_store: bool) -> None:
    settings = bucket.settings(tmp_path / "home")
    settings.home.mkdir()
    put_empty_database(settings.home)
    fill(settings)
    store, database = stores.open_store(settings), Database(settings.database_url)
    ownership.claim(database, store, now=NOW)
    database.close()
    backups.create(settings, store, tmp_path / "backup")
    new = bucket.settings(tmp_path / "new")
    if has_lost_its_store:
        new = bucket.settings(tmp_path / "new", blob_url=bucket.url().replace("a/prefix", "another"))
    backups.make_home(new)
    backups.restore(new, stores.open_store(new), tmp_path / "backup")
    there, database = stores.open_store(new), Database(new.database_url)
    assert there.owner() == (None if has_lost_its_store else store.owner())
    ownership.claim(database, there, now=NOW)
    assert there.owner() == store.owner() is not None
    database.close()


def test_blobs_in_s3_come_along(bucket: Bucket, tmp_path: Path) -> None:
    settings = bucket.settings(tmp_path / "home")
    settings.home.mkdir()
    put_empty_database(settings.home)
    fill(settings)
    made = backups.create(settings, stores.open_store(settings), tmp_path / "backup.tar")
    assert (made.blobs, made.missing) == (3, [])
    new = bucket.settings(tmp_path / "new", blob_url=bucket.url().replace("a/prefix", "another"))
    backups.restore(new, stores.open_store(new), tmp_path / "backup.tar")
    check(new)


def test_postgresql_has_tools_of_its_own(tmp_path: Path) -> None:
    settings = StorageSettings(home=tmp_path, database_url="postgresql+psycopg://localhost/x")
    with pytest.raises(errors.ConfigurationError, match="does not support postgresql") as raised:
        backups.create(settings, LocalBlobStore(tmp_path / "blobs"), tmp_path / "backup.tar")
    assert "pg_dump" in (raised.value.hint or "")


def test_what_another_store_lacks_is_copied(tmp_path: Path) -> None:
    source, target = LocalBlobStore(tmp_path / "source"), LocalBlobStore(tmp_path / "target")
    one, two, bad = (source.put([content]) for content in (b"one", b"two", b"bad"))
    target.put([b"one"])
    source.path(bad.digest).chmod(0o600)
    source.path(bad.digest).write_bytes(b"others")
    copied = backups.copy_blobs(source, target)
    assert copied == backups.Copied(blobs=1, size_bytes=3, there=1, damaged=[bad.digest])
    assert {blob.digest for blob in target.stored(put_before=datetime.now(UTC) + timedelta(days=1))} == {
        one.digest,
        two.digest,
    }


def mixed_up(store: LocalBlobStore) -> tuple[str, str]:
    """Digests of a good blob, and of one whose file has the good one's bytes."""
    good, bad = store.put([b"good"]), store.put([b"bad"])
    store.path(bad.digest).chmod(0o600)
    store.path(bad.digest).write_bytes(b"good")
    return good.digest, bad.digest


@pytest.mark.parametrize("kind", ["files", "s3"])
def test_bytes_under_the_digest_of_others_cost_the_target_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source = LocalBlobStore(tmp_path / "source")
    good, bad = mixed_up(source)
    target: BlobStore = LocalBlobStore(tmp_path / "target")
    if kind == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        target = bucket.store(tmp_path / "home")
    target.put([b"good"])
    assert backups.copy_blobs(source, target) == backups.Copied(there=1, damaged=[bad])
    assert target.exists(good)
    assert not target.exists(bad)


def test_bytes_under_the_digest_of_others_in_a_backup_cost_the_store_nothing(home: Path, tmp_path: Path) -> None:
    back_up(home, tmp_path / "backup")
    place = files.place(tmp_path / "backup" / "blobs", "0" * 64)
    place.parent.mkdir()
    place.write_bytes(b"model" * 1000)
    settings = StorageSettings(home=tmp_path / "new")
    backups.make_home(settings)
    store = stores.open_store(settings)
    model = store.put([b"model" * 1000])
    with pytest.raises(errors.BlobDamaged, match="0" * 64):
        backups.restore(settings, store, tmp_path / "backup")
    assert store.exists(model.digest)
