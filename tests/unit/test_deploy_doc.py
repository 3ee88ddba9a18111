"""The systemd unit of docs/how-to/deploy.md, as far as it can be checked without systemd."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

from tunesmith.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "deploy.md").read_text()


def test_the_unit_of_a_worker_starts_a_worker() -> None:
    text = re.search(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    assert text
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text[1])
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program) == Path(service["WorkingDirectory"]) / "run"
    assert (ROOT / "run").is_file()
    assert arguments == ["cli", "worker"]
    assert "worker" in [
        command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands
    ]
    assert float(service["TimeoutStopSec"]) > 8, "a stopping worker returns its job within 8 s"
    assert service["EnvironmentFile"] in PAGE.replace(text[0], "")
