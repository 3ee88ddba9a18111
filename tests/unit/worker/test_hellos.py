"""Hellos of engines are stored, so that a worker starts quickly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.worker.scripted import HELLO, Script
from worker import engines, paths


@pytest.fixture(autouse=True)
def _any_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_key", lambda *_: "key")


def test_an_engine_is_asked_again_if_a_power_failure_emptied_its_hello(tmp_path: Path) -> None:
    script = Script()
    for _ in range(2):
        assert engines.ask_hello("relay", tmp_path, script) == HELLO
    assert script.started == ["relay"]
    (stored,) = paths.hello_cache(tmp_path).iterdir()
    stored.write_bytes(b"")
    for _ in range(2):
        assert engines.ask_hello("relay", tmp_path, script) == HELLO
    assert script.started == ["relay", "relay"]


def test_a_hello_that_cannot_be_stored_is_used(tmp_path: Path) -> None:
    paths.hello_cache(tmp_path).parent.mkdir(parents=True, exist_ok=True)
    paths.hello_cache(tmp_path).write_text("a file in the folder's place")
    assert engines.ask_hello("relay", tmp_path, Script()) == HELLO
