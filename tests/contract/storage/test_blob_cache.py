"""Copies of blobs on this host: fetched once, held while they are used, removed when there are too many."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from domain import errors
from storage.blobs.cache import BlobCache

KIB = 1024


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def writer(content: bytes, fetched: list[str] | None = None) -> Callable[[BinaryIO], None]:
    def fetch(file: BinaryIO) -> None:
        if fetched is not None:
            fetched.append(digest_of(content))
        file.write(content)

    return fetch


def kept(root: Path) -> set[str]:
    return {path.parent.name + path.name for path in root.glob("??/*")}


def fetch_at(cache: BlobCache, content: bytes, when: int) -> str:
    """Fetched, and used last at that time."""
    digest = digest_of(content)
    with cache.local(digest, len(content), writer(content)) as path:
        assert path.read_bytes() == content
    os.utime(path, (when, when))
    return digest


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, limit_bytes=3 * KIB)
    old, middle, new = (fetch_at(cache, letter * KIB, when) for when, letter in enumerate([b"a", b"b", b"c"]))
    with cache.local(old, KIB, writer(b"never asked")):
        pass  # used again: now the middle one is the oldest
    other = fetch_at(cache, b"d" * KIB, 10)
    assert kept(tmp_path) == {old, new, other}
    assert middle not in kept(tmp_path)


def test_what_is_used_stays_whatever_the_limit(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, limit_bytes=KIB)
    content = b"a" * KIB
    with cache.local(digest_of(content), KIB, writer(content)) as held:
        for number in range(5):
            fetch_at(cache, bytes([number]) * KIB, number)
        assert held.read_bytes() == content
    fetch_at(cache, b"z" * KIB, 100)
    assert not held.exists()


def test_a_file_that_is_open_can_be_read_though_it_is_removed(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, limit_bytes=KIB)
    digest = fetch_at(cache, b"a" * KIB, 0)
    file = cache.open(digest)
    assert file is not None
    with file:
        fetch_at(cache, b"b" * KIB, 1)
        assert cache.open(digest) is None
        assert file.read() == b"a" * KIB


def add(cache: BlobCache, content: bytes) -> None:
    path = cache.incoming / "received"
    path.write_bytes(content)
    cache.add(path, digest_of(content))


def test_what_is_used_is_not_replaced_by_the_same_bytes(tmp_path: Path) -> None:
    """The lock of who uses it is the file's: a new one in its place would be free to be removed."""
    cache = BlobCache(tmp_path, limit_bytes=KIB)
    content = b"a" * KIB
    with cache.local(digest_of(content), KIB, writer(content)) as held:
        before = held.stat().st_ino
        add(cache, content)
        assert held.stat().st_ino == before
        for number in range(5):
            fetch_at(cache, bytes([number]) * KIB, number)
        assert held.read_bytes() == content
    add(cache, content)
    assert held.stat().st_ino != before  # it is the one that was just received, in place of one that may be damaged
    fetch_at(cache, b"z" * KIB, 2**33)
    assert not held.exists()


def test_what_is_used_is_not_forgotten_under_its_user(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, limit_bytes=KIB)
    content = b"a" * KIB
    with cache.local(digest_of(content), KIB, writer(content)) as held:
        cache.forget(digest_of(content))
        assert held.read_bytes() == content
    cache.forget(digest_of(content))
    assert not held.exists()


def test_a_file_that_took_the_place_of_an_old_one_is_not_removed_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening a file and locking it another may have removed it, and a third fetched it again."""
    cache = BlobCache(tmp_path, limit_bytes=KIB)
    content = b"a" * KIB
    digest = fetch_at(cache, content, 0)
    lock = fcntl.flock

    def late(file: BinaryIO, how: int) -> None:
        if how & fcntl.LOCK_NB:
            monkeypatch.setattr(fcntl, "flock", lock)
            cache.forget(digest)
            users.enter_context(cache.local(digest, KIB, writer(content)))
        lock(file, how)

    with contextlib.ExitStack() as users:
        monkeypatch.setattr(fcntl, "flock", late)
        cache.forget(digest)
        assert kept(tmp_path) == {digest}


def test_files_are_added_evicted_and_used_by_many_at_once(tmp_path: Path) -> None:
    """With room for two of ten, nobody ever sees a file that is not there or not whole."""
    cache = BlobCache(tmp_path, limit_bytes=2 * KIB)
    contents = [bytes([number]) * KIB for number in range(10)]

    def use(turn: int) -> bool:
        content = contents[turn * 7 % 10]
        if turn % 3 == 0:
            received = cache.incoming / f"received-{turn}"
            received.write_bytes(content)
            cache.add(received, digest_of(content))
            received.unlink(missing_ok=True)
        with cache.local(digest_of(content), KIB, writer(content)) as path:
            time.sleep(0.001)
            return path.read_bytes() == content

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(use, range(600)))


def test_a_fetch_that_fails_leaves_nothing(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, limit_bytes=KIB)

    def damaged(file: BinaryIO) -> None:
        file.write(b"half")
        raise errors.BlobDamaged("not these")

    with pytest.raises(errors.BlobDamaged), cache.local("a" * 64, 4, damaged):
        pass
    assert kept(tmp_path) == set()
    assert list((tmp_path / "incoming").iterdir()) == []


def test_threads_that_want_the_same_fetch_once(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, limit_bytes=KIB * KIB)
    content, fetched, together = b"a" * KIB, [], threading.Barrier(8)

    def use(_: int) -> bytes:
        together.wait()
        with cache.local(digest_of(content), KIB, writer(content, fetched)) as path:
            return path.read_bytes()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(use, range(8))) == {content}
    assert len(fetched) == 1


USER = """
import hashlib, sys, time
from pathlib import Path
from storage.blobs.cache import BlobCache

root, log = Path(sys.argv[1]), Path(sys.argv[2])
content = b"shared" * 1000
cache = BlobCache(root, limit_bytes=1)

def fetch(file):
    with log.open("a") as told:
        told.write("fetched\\n")
    time.sleep(0.5)
    file.write(content)

print("ready", flush=True)
sys.stdin.readline()
with cache.local(hashlib.sha256(content).hexdigest(), len(content), fetch) as path:
    time.sleep(0.5)
    assert path.read_bytes() == content
print("read", flush=True)
"""


def test_processes_that_want_the_same_fetch_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    arguments = [sys.executable, "-c", USER, str(tmp_path / "cache"), str(log)]
    users = [
        subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        )
        for _ in range(3)
    ]
    for user in users:
        assert user.stdout is not None
        assert user.stdout.readline() == "ready\n"
    for user in users:
        assert user.stdin is not None
        user.stdin.write("go\n")
        user.stdin.flush()
    assert [user.communicate(timeout=30)[0] for user in users] == ["read\n"] * 3
    assert log.read_text() == "fetched\n"
