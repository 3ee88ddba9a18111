"""The home folder is closed to others, and what may not be closed is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain import errors
from process import homes


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_new_home_and_all_that_is_made_are_the_owners_alone(tmp_path: Path) -> None:
    assert homes.prepare(tmp_path / "new") is None
    assert mode(tmp_path / "new") == 0o700
    homes.keep_new_files_private()
    (tmp_path / "db").touch()
    (tmp_path / "logs").mkdir()
    assert (mode(tmp_path / "db"), mode(tmp_path / "logs")) == (0o600, 0o700)


@pytest.mark.parametrize("open_mode", [0o755, 0o750, 0o711, 0o2775])
def test_a_home_of_ours_is_closed(tmp_path: Path, open_mode: int) -> None:
    tmp_path.chmod(open_mode)
    assert "open to other users" in str(homes.wrong_with(tmp_path))
    assert homes.prepare(tmp_path) is None
    assert mode(tmp_path) & 0o777 == 0o700


def test_a_folder_of_everybody_stays_one_and_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert "1777" in str(homes.prepare(tmp_path))
    assert mode(tmp_path) == 0o1777


def test_a_home_that_cannot_be_closed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(30, "Read-only file system")

    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refuse)
    assert str(tmp_path) in str(homes.prepare(tmp_path))


def test_a_home_of_somebody_else_is_left_alone_and_may_be_ours_by_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    tmp_path.chmod(0o2770)
    assert homes.prepare(tmp_path) is None
    tmp_path.chmod(0o755)
    assert "open to other users" in str(homes.prepare(tmp_path))
    assert mode(tmp_path) == 0o755


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.ConfigurationError, match="cannot be used"):
        homes.prepare(tmp_path / "file" / "home")
