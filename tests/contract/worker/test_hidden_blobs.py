"""Engines of jobs see nothing of the store where everybody's models and bundles lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.host import environments
from tuner.host.session import EngineSession
from tuner.host.settings import TunerSettings
from worker.engines import EngineOptions, InstalledEngines

Hidden = Callable[[], tuple[str, ...]]


@pytest.fixture
def hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hidden:
    def ask() -> tuple[str, ...]:
        asked: list[tuple[str, ...]] = []
        monkeypatch.setattr(environments, "interpreter", lambda *_: Path("python"))
        monkeypatch.setattr(EngineSession, "start", lambda *_, limits, **__: asked.append(limits.hidden))
        InstalledEngines(home=tmp_path / "home", settings=TunerSettings()).start(
            "relay", EngineOptions(log=tmp_path / "log")
        )
        return asked[0]

    monkeypatch.delenv("TUNESMITH_BLOB_URL", raising=False)
    return ask


def test_the_store_under_the_home_folder(hidden: Hidden, tmp_path: Path) -> None:
    assert hidden() == (str(tmp_path / "home" / "blobs"),)


def test_a_store_elsewhere(hidden: Hidden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_BLOB_URL", "file:///srv/models")
    assert hidden() == ("/srv/models",)


def test_copies_of_a_store_on_s3(hidden: Hidden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_BLOB_URL", "s3://models?region=eu-central-1")
    assert hidden() == (str(tmp_path / "home" / "blob-cache"),)


def test_a_store_around_what_an_engine_needs_cannot_be_hidden(
    hidden: Hidden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESMITH_BLOB_URL", f"file://{tmp_path}")
    assert hidden() == ()
