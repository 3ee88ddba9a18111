"""``tunesmith engines``: what is said once something was installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.tunesmith.commands import run
from tuner.host import environments
from tuner.host.catalogue import EngineSpec


@pytest.mark.parametrize(("said", "told"), [([], ""), (["making it"], "restart running workers")])
def test_running_workers_are_told_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, said: list[str], told: str
) -> None:
    def install(_spec: EngineSpec, _home: Path, on_progress: Callable[[str], None]) -> None:
        for line in said:
            on_progress(line)

    monkeypatch.setattr(environments, "install", install)
    status, out, err = run(capsys, "engines", "install", "relay")
    assert (status, out) == (0, "")
    assert err.count("\n") == 2 * len(said)
    assert told in err
