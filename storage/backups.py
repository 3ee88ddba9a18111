"""Backups of the database and blobs, taken while the service runs, and their restoration.

A backup is a folder, or a tar of one, with ``backup.json``, ``db.sqlite3`` and ``blobs/ab/cdef…``. The database is
copied first, as a consistent snapshot, then the bytes of every model, artifact and data set in that snapshot, each
verified against its digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import make_url

from domain import errors, release
from domain.blobs import BlobStore
from domain.digests import BlobDigest
from storage import jobs, webhooks
from storage.blobs import files
from storage.database import Database, migrate, unavailable
from storage.settings import StorageSettings
from storage.tables import WITH_BLOBS

MANIFEST, DATABASE, BLOBS = "backup.json", "db.sqlite3", "blobs"
_FORMAT = 1
_READ_BYTES = 1024**2
_NAMED = tuple(row.__tablename__ for row in WITH_BLOBS)
_BESIDE = ("-wal", "-shm", "-journal")
"""Suffixes of SQLite's additional files."""
_OLDER = "Restore an older backup."
_CLOCKS_DIFFER = timedelta(days=1)
_PAUSED = "Canceled when a backup was restored with --paused. `tunesmith retry` submits the job again."
_NOT_SENT = "not sent: the backup was restored with --paused"


@dataclass(frozen=True, kw_only=True)
class Backup:
    path: Path
    blobs: int = 0
    size_bytes: int = 0
    """Bytes of all blobs."""
    missing: list[BlobDigest] = field(default_factory=list)
    """Digests of objects whose bytes are missing or corrupt."""
    paused: Paused | None = None


@dataclass(frozen=True, kw_only=True)
class Paused:
    """What a paused restore ended."""

    jobs: int
    """Unfinished jobs, now canceled."""
    messages: int
    """Undelivered webhook messages, now given up."""


def create(settings: StorageSettings, blobs: BlobStore, target: Path) -> Backup:
    """Create a backup atomically: a folder, or a tar if the name ends in ``.tar``, readable by its owner only.

    Raises ConfigurationError, DatabaseUnavailable and BlobStoreUnavailable.
    """
    source, target = _database(settings), target.absolute()
    if target.exists():
        raise errors.ConfigurationError(f"{target} already exists", hint="Choose a path that does not exist.")
    if not source.is_file():
        raise errors.ConfigurationError(
            f"the database {source} does not exist", hint="Set TUNESMITH_HOME to the service's home folder."
        )
    with _writing(target), tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as name:
        folder = Path(name) / target.name
        folder.mkdir(mode=0o700)
        _create(folder / DATABASE).close()
        copy_database(source, folder / DATABASE)
        with _asking():
            made = _copy_blobs(folder, blobs, target)
        about = {"format": _FORMAT, "release": release.VERSION, "made_at": datetime.now(UTC).isoformat()}
        counts = {"blobs": made.blobs, "bytes": made.size_bytes, "missing": made.missing}
        (folder / MANIFEST).write_text(json.dumps(about | counts, indent=2) + "\n")
        if target.suffix == ".tar":
            packed = Path(name) / "packed"
            with _create(packed) as file, tarfile.open(fileobj=file, mode="w") as archive:
                archive.add(folder, arcname=".", filter=_plain)
            packed.replace(target)
        else:
            folder.replace(target)
    return made


def make_home(settings: StorageSettings) -> None:
    """Create the home folder for a restore, readable by its owner only, before a store is opened in it."""
    with _writing(settings.home):
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)


def restore(settings: StorageSettings, blobs: BlobStore, source: Path, *, paused: bool = False) -> Backup:
    """Restore a backup into an empty home folder, the database last, so that an interrupted restore can be repeated.

    With ``paused``, jobs that were unfinished in the backup are canceled and its undelivered webhook messages given up,
    so that a copy of a service repeats nothing; this also migrates the database to this release.

    Raises ConfigurationError, InvalidRequest for an invalid backup, BlobDamaged and BlobStoreUnavailable.
    """
    target, source = _database(settings), source.absolute()
    if target.exists():
        raise errors.ConfigurationError(
            f"the database {target} already exists", hint="Restore into an empty home folder."
        )
    for ending in _BESIDE:
        left = target.with_name(target.name + ending)
        if left.exists():
            raise errors.ConfigurationError(
                f"{left} is left over from an earlier database",
                hint="Move it away: SQLite would apply its contents to the restored database.",
            )
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _writing(target), _unpacked(source, target.parent) as folder:
        about = _about(folder, source)
        if found := _wrong_with(folder / DATABASE):
            raise errors.InvalidRequest(f"the backup's database is corrupt: {found}", hint=_OLDER)
        count = size = 0
        for digest, facts in files.blobs_in(folder / BLOBS):
            with files.place(folder / BLOBS, digest).open("rb") as file:
                blobs.put(_checked(file, digest))
            count, size = count + 1, size + facts.st_size
        if count != about["blobs"]:
            raise errors.InvalidRequest(
                f"the backup should contain {about['blobs']} blobs, but contains {count}", hint=_OLDER
            )
        ended = _place_database(folder / DATABASE, target, paused=paused)
    return Backup(path=source, blobs=count, size_bytes=size, missing=list(about["missing"]), paused=ended)


def _place_database(source: Path, target: Path, *, paused: bool) -> Paused | None:
    """Move the database into place, atomically even if power fails."""
    temporary = target.with_name(f".{target.name}.restored")
    for ending in ("", *_BESIDE):  # left by an interrupted restore
        temporary.with_name(temporary.name + ending).unlink(missing_ok=True)
    with source.open("rb") as reading, _create(temporary) as writing:
        shutil.copyfileobj(reading, writing)
    ended = _pause(temporary) if paused else None
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    temporary.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return ended


def _pause(path: Path) -> Paused:
    """End what a service with this database would start or send, and leave a single file."""
    with contextlib.closing(Database(f"sqlite:///{path}")) as database:
        migrate(database)
        with database.transaction() as session:
            ended = Paused(
                jobs=jobs.cancel_all(session, reason=_PAUSED, now=datetime.now(UTC)),
                messages=webhooks.give_up_all(session, reason=_NOT_SENT),
            )
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    return ended


def _create(path: Path) -> BinaryIO:
    """Create a file that only its owner can read, whatever the umask: a database contains webhook secrets."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


@dataclass(frozen=True, kw_only=True)
class Copied:
    blobs: int = 0
    size_bytes: int = 0
    there: int = 0
    """Blobs already present in the target."""
    damaged: list[BlobDigest] = field(default_factory=list)
    """Digests of corrupt blobs, which were not copied."""


def copy_blobs(source: BlobStore, target: BlobStore) -> Copied:
    """Copy every blob that the target lacks; nothing is removed. Raises BlobStoreUnavailable."""
    count = size = there = 0
    damaged: list[BlobDigest] = []
    for blob in source.stored(put_before=datetime.now(UTC) + _CLOCKS_DIFFER):
        if target.exists(blob.digest):
            there += 1
        elif _copied_to(source, target, blob.digest):
            count, size = count + 1, size + blob.size_bytes
        else:
            damaged.append(blob.digest)
    return Copied(blobs=count, size_bytes=size, there=there, damaged=damaged)


def _copied_to(source: BlobStore, target: BlobStore, digest: BlobDigest) -> bool:
    try:
        with source.open(digest) as file:
            target.put(_checked(file, digest))
    except errors.BlobNotFound:
        return True  # deleted since the listing
    except errors.BlobDamaged:
        return False
    return True


def _checked(file: BinaryIO, digest: BlobDigest) -> Iterator[bytes]:
    """Yield the chunks of a file for ``put``. Raises BlobDamaged at the end, before anything is stored, for a wrong
    digest.

    The bytes may be those of another blob in the store, so removing them afterwards would lose that one.
    """
    found = hashlib.sha256()
    while chunk := file.read(_READ_BYTES):
        found.update(chunk)
        yield chunk
    if found.hexdigest() != digest:
        raise errors.BlobDamaged(f"the file stored as {digest} has different content")


def copy_database(source: Path, target: Path) -> None:
    """Copy a consistent snapshot of a database with concurrent writers into one file.

    Raises DatabaseDamaged and DatabaseUnavailable.
    """
    with (
        _asking(),
        contextlib.closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as reading,
        contextlib.closing(sqlite3.connect(target)) as writing,
    ):
        reading.backup(writing)
        writing.execute("PRAGMA journal_mode=DELETE")
    if found := _wrong_with(target):
        raise errors.DatabaseDamaged(f"the database is corrupt: {found}")


def _database(settings: StorageSettings) -> Path:
    url = make_url(settings.database_url)
    if url.get_backend_name() != "sqlite":
        raise errors.ConfigurationError(
            f"tunesmith backup does not support {url.get_backend_name()}",
            hint="Use pg_dump, and the blob store's own versioning or sync; see docs/how-to/operations.md.",
        )
    return Path(str(url.database)).absolute()


def _copy_blobs(folder: Path, blobs: BlobStore, target: Path) -> Backup:
    count = size = 0
    missing = []
    for digest in _known(folder / DATABASE):
        copied = _copied(blobs, digest, files.place(folder / BLOBS, digest))
        if copied is None:
            missing.append(digest)
        else:
            count, size = count + 1, size + copied
    return Backup(path=target, blobs=count, size_bytes=size, missing=missing)


def _copied(blobs: BlobStore, digest: BlobDigest, target: Path) -> int | None:
    """Copy a blob and return its size; None if it is missing or corrupt."""
    with contextlib.suppress(errors.BlobNotFound, errors.BlobDamaged), blobs.local(digest) as path:
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                return None
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        return target.stat().st_size
    return None


def _known(database: Path) -> Iterator[BlobDigest]:
    """Return the digests of all objects; databases of older releases have fewer tables, and no deleted ones."""
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        for table in _NAMED:
            columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            if not columns:
                continue
            living = " WHERE deleted_at IS NULL" if "deleted_at" in columns else ""
            for (digest,) in connection.execute(f"SELECT digest FROM {table}{living}").fetchall():  # noqa: S608 - ours
                yield digest


def _wrong_with(database: Path) -> str | None:
    """Return SQLite's description of a corruption, in one line; None for an intact database."""
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        found = str(error)
    return None if found == "ok" else " ".join(found.split())


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise unavailable(error) from error


def _about(folder: Path, source: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        if about["format"] != _FORMAT:
            raise errors.InvalidRequest(
                f"{source} is a backup in the unknown format {about['format']}",
                hint="Use the release that made it, or a newer release.",
            )
        return {"blobs": int(about["blobs"]), "missing": list(about["missing"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.InvalidRequest(f"{source} is not a backup", hint="Create one with tunesmith backup.") from error


@contextlib.contextmanager
def _unpacked(source: Path, near: Path) -> Iterator[Path]:
    if source.is_dir():
        yield source
        return
    with tempfile.TemporaryDirectory(dir=near, prefix=".restore-") as name:
        try:
            with tarfile.open(source, "r:") as archive:
                archive.extractall(name, filter="data")
        except (tarfile.TarError, FileNotFoundError) as error:
            raise errors.InvalidRequest(
                f"{source} is not a backup", hint="Create one with tunesmith backup."
            ) from error
        yield Path(name)


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise errors.ConfigurationError(
            f"{error.filename or target}: {reason}", hint="Choose a path that this user can write to."
        ) from error


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Write a file readable by its owner only: a database contains webhook secrets."""
    member.mode = 0o700 if member.isdir() else 0o600
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
