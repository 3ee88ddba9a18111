from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.system.deployment import composing


@pytest.fixture
def made_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("TUNESMITH_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "secrets"
    subprocess.run([composing.FOLDER / "make-secrets.sh", folder], check=True, capture_output=True)
    return folder
