from __future__ import annotations

import pytest

from tests.support.tuner import sandboxed


@pytest.fixture(params=sandboxed.users(), ids=lambda user: "root" if user == 0 else f"user {user}")
def user(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    sandboxed.weaken(monkeypatch, [sandboxed.NO_NAMESPACES])
