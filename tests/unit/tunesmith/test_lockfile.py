"""Lock files: what is read, what is refused, and what several programs write at once."""

from __future__ import annotations

import errno
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.tunesmith.test_pull import LOCK
from tunesmith import errors, lockfile
from tunesmith.lockfile import check_speed


@pytest.mark.parametrize(
    "text",
    ["<<<<<<< HEAD\nversion = 1\n", "version = 9\n", "[[artifact]]\nmodel = 1\n", "version = 1\nartifact = 3\n",
     "version = 1\n[[artifact]]\nmodel = 1\n", "version = 1\nartifact = ['x']\n"],
)  # fmt: skip
def test_what_is_no_lock_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / LOCK
    path.write_text(text)
    with pytest.raises(errors.InvalidInput, match=f"{LOCK} is not a valid lock file") as caught:
        lockfile.read(path)
    assert (caught.value.code, bool(caught.value.hint)) == ("invalid_lock", True)


def test_a_lock_file_survives_odd_names(tmp_path: Path) -> None:
    entry = lockfile.Entry(
        model="ab", target='llvm "quoted" \\ \x7f\t', device="Größe/日本", input_shapes={'x "y"=': [1, 2], "a": []},
        artifact="a-1", sha256="cd", bytes=1, built_for="b", device_key="k", toolchain="relay/tvm-1/llvm-2",
    )  # fmt: skip
    path = tmp_path / LOCK
    lockfile.write(path, {entry.key: entry})
    assert lockfile.read(path) == {entry.key: entry}
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o600)
    lockfile.write(path, {})
    assert (lockfile.read(path), path.stat().st_mode & 0o777) == ({}, 0o600)


def _entry(model: str) -> lockfile.Entry:
    return lockfile.Entry(
        model=model, target="native", artifact="a-1", sha256="cd", bytes=1, built_for="b", device_key="k",
        toolchain="relay/tvm-1/llvm-2",
    )  # fmt: skip


def test_no_limit_lets_pass_what_was_never_timed() -> None:
    held, now = replace(_entry("ab"), median_seconds=0.1), replace(_entry("ab"), artifact="a-2", sha256="ef")
    with pytest.raises(errors.LockNotKept, match="a-2 was never timed") as caught:
        check_speed(held, now, 0.05)
    assert caught.value.code == "artifact_slower"


def _put_some(path: Path, process: int) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: lockfile.put(path, _entry(f"{process}-{number}")), range(10)))


@pytest.mark.contract
def test_entries_put_at_once_are_all_kept(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_put_some, args=(tmp_path / LOCK, process)) for process in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    models = {entry.model for entry in lockfile.read(tmp_path / LOCK).values()}
    assert models == {f"{process}-{number}" for process in range(3) for number in range(10)}
    assert [each.name for each in tmp_path.iterdir()] == [LOCK]


def test_entries_are_put_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockfile, "fcntl", None)
    for model in ("ab", "cd", "ab"):
        lockfile.put(tmp_path / LOCK, _entry(model))
    assert [entry.model for entry in lockfile.read(tmp_path / LOCK).values()] == ["ab", "cd"]


def test_a_lock_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "chmod", full)
    with pytest.raises(errors.InvalidInput, match="No space left") as caught:
        lockfile.put(tmp_path / LOCK, _entry("ab"))
    assert (caught.value.code, list(tmp_path.iterdir())) == ("unwritable_file", [])
    with pytest.raises(errors.InvalidInput, match="cannot write"):
        lockfile.put(tmp_path / "nowhere" / LOCK, _entry("ab"))
