"""What the API needs to start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from api import __main__ as program


@pytest.mark.parametrize("token", [None, ""])
def test_without_a_token_it_does_not_start(
    token: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["api"])
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))
    monkeypatch.setenv("TUNESMITH_BROKER_URL", "redis://localhost:1")
    for name in ("TUNESMITH_TOKEN", "TUNESMITH_OPEN"):
        monkeypatch.delenv(name, raising=False)
    if token is not None:
        monkeypatch.setenv("TUNESMITH_TOKEN", token)
    assert program.main() == 3
    said = capsys.readouterr().err
    assert "TUNESMITH_TOKEN is not set" in said
    assert "TUNESMITH_OPEN=1" in said
    assert not list(tmp_path.iterdir())


def test_hosts_that_are_none_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["api"])
    monkeypatch.setenv("TUNESMITH_WEBHOOK_HOSTS", "10.0.0.1/8")
    assert program.main() == 3
    assert "TUNESMITH_WEBHOOK_HOSTS: '10.0.0.1/8' is not a host or network" in capsys.readouterr().err


def test_a_flag_lets_it_start_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["api"])
    monkeypatch.setattr(program.ApiServer, "run", lambda *_: None)
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))
    monkeypatch.setenv("TUNESMITH_BROKER_URL", "redis://localhost:1")
    monkeypatch.delenv("TUNESMITH_TOKEN", raising=False)
    monkeypatch.setenv("TUNESMITH_OPEN", "1")
    assert program.main() == 0


def test_a_token_may_stand_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["api"])
    monkeypatch.setattr(program.ApiServer, "run", lambda *_: None)
    for name, text in (("token", "s3cret"), ("broker_url", "redis://localhost:1")):
        (tmp_path / name).write_text(text)
        monkeypatch.setenv(f"TUNESMITH_{name.upper()}_FILE", str(tmp_path / name))
        monkeypatch.delenv(f"TUNESMITH_{name.upper()}", raising=False)
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))
    assert program.main() == 0


def test_a_database_that_is_away_is_told_and_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["api"])
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))
    monkeypatch.setenv("TUNESMITH_TOKEN", "s3cret")
    monkeypatch.setenv("TUNESMITH_BROKER_URL", "redis://localhost:1")
    monkeypatch.setenv("TUNESMITH_DATABASE_URL", "postgresql+psycopg://me:hunter2@127.0.0.1:1/tunesmith")
    assert program.main() == 4
    said = capsys.readouterr().err
    assert "the database cannot be used" in said
    assert "hunter2" not in said
