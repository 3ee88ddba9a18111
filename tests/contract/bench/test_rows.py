from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import rows


def test_a_row_keeps_its_commit_while_only_tests_and_pages_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    def committed(name: str) -> str:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "file").write_text(name)
        git("add", ".")
        git("commit", "-m", name)
        return rows.commit()

    monkeypatch.setattr(rows, "_ROOT", tmp_path)
    assert rows.commit() == "unknown"
    git("init")
    first = committed("tuner")
    assert len(first) == 12
    assert committed("docs") == first
    (tmp_path / "docs" / "row").write_text("")
    assert rows.commit() == first
    (tmp_path / "tuner" / "new").write_text("")
    assert rows.commit() == f"{first}-dirty"
    assert committed("worker") not in (first, f"{first}-dirty")
