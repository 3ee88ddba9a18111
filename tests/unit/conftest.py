"""What holds for every unit test."""

from __future__ import annotations

import pytest

from storage import database


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost power takes the test's database with it anyway; that commits are durable is a contract test's matter."""
    monkeypatch.setattr(database, "_SYNCHRONOUS", "OFF")
