"""A file system without space, seen by the checks behind /readyz."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from domain import errors
from storage.blobs.local import LocalBlobStore
from storage.database import Database
from tests.support.storage.empty import put_empty_database
from tests.support.topology import disks


def test_a_full_disk_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    disk = disks.mount(folder)
    if disk is None:
        pytest.skip("this needs the right to mount")
    with contextlib.ExitStack() as stack:
        stack.callback(disk.unmount)
        put_empty_database(folder)
        database = Database(f"sqlite:///{folder / 'db.sqlite3'}")
        stack.callback(database.close)
        blobs = LocalBlobStore(folder / "blobs")
        database.check_writable()
        blobs.check()
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            database.check_writable()
        with pytest.raises(errors.BlobStoreFull):
            blobs.check()
        disk.free()
        database.check_writable()
        blobs.check()
