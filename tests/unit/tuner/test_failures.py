"""Codes of engines: each is documented, and what is the caller's own becomes the caller's error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner.host import failures

ROOT = Path(__file__).parents[3]
OWN = {
    "child_not_started",
    "compile_failed",
    "disk_full",
    "engine_internal_error",
    "plugin_failed",
    "unknown_method",
    "unknown_workload",
    "wrong_rewriting",
}
"""What is an engine's failure, whoever asked."""


def codes() -> set[str]:
    pattern = re.compile(r"(?:EngineFailure|faults\.failure)\(\s*\"([a-z_]+)\"")
    sources = (ROOT / "tuner" / "engines").rglob("*.py")
    return {code for source in sources for code in pattern.findall(source.read_text())}


def test_every_code_of_an_engine_has_a_meaning() -> None:
    assert "compiler_missing" in codes()
    assert codes() - OWN <= set(failures.CODES)


@pytest.mark.parametrize("code", sorted(set(failures.CODES) - {"shape_required", "shape_mismatch"}))
def test_every_code_is_documented(code: str) -> None:
    text = (ROOT / "docs" / "reference" / "engine-protocol.md").read_text()
    assert f"`{code}`" in text.partition("## Codes of failure")[2]
