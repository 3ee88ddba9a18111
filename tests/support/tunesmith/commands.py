"""The command line, called in the test's own process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tunesmith.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def parsed(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    status, out, err = run(capsys, *arguments, "--json")
    assert status == 0, err
    return json.loads(out)
