"""Settings come from variables or from files that these name, and what is wrong with one is said by its name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from api.settings import ApiSettings
from domain import errors
from process import settings
from process.settings import Settings, variable
from storage.settings import StorageSettings
from tuner.host.settings import TunerSettings
from worker.settings import WorkerSettings

CLASSES = [StorageSettings, TunerSettings, WorkerSettings, ApiSettings]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TUNESMITH_")]:
        monkeypatch.delenv(name)


def test_a_secret_stands_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    monkeypatch.setenv("TUNESMITH_TOKEN_FILE", str(tmp_path / "token"))
    token = ApiSettings().token
    assert token is not None
    assert token.get_secret_value() == "s3cret"
    assert "TUNESMITH_TOKEN" not in os.environ


@pytest.mark.parametrize("settings", CLASSES)
def test_every_setting_may_stand_in_a_file(
    settings: type[BaseSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the defaults are, written into files, is read as the same."""
    assert issubclass(settings, Settings)
    before = settings()
    for name, value in before.model_dump(mode="json").items():
        if value in (None, ""):
            continue
        (tmp_path / name).write_text(f"{value}\r\n")
        monkeypatch.setenv(f"{variable(name)}_FILE", str(tmp_path / name))
    assert settings() == before
    monkeypatch.setenv(f"{variable(next(iter(settings.model_fields)))}_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(errors.ConfigurationError, match="nowhere"):
        settings()


def test_an_empty_variable_beside_a_file_counts_as_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "url").write_text("redis://example/0")
    monkeypatch.setenv("TUNESMITH_BROKER_URL", "")
    monkeypatch.setenv("TUNESMITH_BROKER_URL_FILE", str(tmp_path / "url"))
    assert WorkerSettings().broker_url == "redis://example/0"
    assert settings.given("TUNESMITH_BROKER_URL") == "redis://example/0"


def write(path: Path, data: bytes | None) -> Path:
    if data is None:
        path.mkdir()
    else:
        path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"x" * 70_000, "more than 65536 bytes"),
        (None, "cannot read"),
    ],
    ids=["empty", "a line", "binary", "huge", "a folder"],
)
def test_what_is_wrong_with_a_file_is_said(
    data: bytes | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESMITH_TOKEN_FILE", str(write(tmp_path / "token", data)))
    with pytest.raises(errors.ConfigurationError, match=said) as caught:
        ApiSettings()
    assert "TUNESMITH_TOKEN_FILE" in caught.value.message
    assert str(tmp_path / "token") in caught.value.message


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match="No such file") as caught:
        settings.value_of("TUNESMITH_TOKEN", {"TUNESMITH_TOKEN_FILE": str(tmp_path / "nothing")})
    assert caught.value.hint


def test_a_variable_and_its_file_together_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("one")
    monkeypatch.setenv("TUNESMITH_TOKEN", "another")
    monkeypatch.setenv("TUNESMITH_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(errors.ConfigurationError, match="both set") as caught:
        ApiSettings()
    assert "another" not in caught.value.message


def test_a_wrong_value_is_told_by_its_variable_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_PORT", "hunter2")
    monkeypatch.setenv("TUNESMITH_RATE_BURST", "0")
    with pytest.raises(errors.ConfigurationError, match=r"TUNESMITH_PORT: .*; TUNESMITH_RATE_BURST: ") as caught:
        ApiSettings()
    assert "hunter2" not in caught.value.message
    assert caught.value.__cause__ is None
