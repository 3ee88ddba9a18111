"""Engines of jobs see nothing of the store where everybody's models and bundles lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.host import environments
from tuner.host.session import EngineSession
from tuner.host.settings import TunerSettings
from worker.engines import EngineOptions, InstalledEngines


@pytest.mark.parametrize(
    ("url", "hidden"),
    [
        (None, ["{folder}/home/blobs"]),
        ("file:///srv/models", ["/srv/models"]),
        ("s3://models?region=eu-central-1", ["{folder}/home/blob-cache"]),
        ("file://{folder}", []),
    ],
    ids=["under the home", "elsewhere", "copies of S3", "around what an engine needs"],
)
def test_the_store_is_hidden_from_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None, hidden: list[str]
) -> None:
    monkeypatch.delenv("TUNESMITH_BLOB_URL", raising=False)
    if url:
        monkeypatch.setenv("TUNESMITH_BLOB_URL", url.format(folder=tmp_path))
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(environments, "interpreter", lambda *_: Path("python"))
    monkeypatch.setattr(EngineSession, "start", lambda *_, limits, **__: asked.append(limits.hidden))
    engines = InstalledEngines(home=tmp_path / "home", settings=TunerSettings())
    engines.start("relay", EngineOptions(log=tmp_path / "log"))
    assert asked == [tuple(path.format(folder=tmp_path) for path in hidden)]
