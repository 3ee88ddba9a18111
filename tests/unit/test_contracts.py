"""The import contracts name every module that they are about."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def contracts() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return found


@pytest.mark.parametrize("forbidden", ["tuner.engines.relay", "tvm"])
def test_every_module_of_the_host_is_held_apart(forbidden: str) -> None:
    (contract,) = [
        each
        for each in contracts()
        if forbidden in each.get("forbidden_modules", ()) and "worker" in each["source_modules"]
    ]
    parts = {f"tuner.{path.parent.name}" for path in (ROOT / "tuner").glob("*/__init__.py")} - {"tuner.engines"}
    assert parts <= set(contract["source_modules"])


def test_the_vocabulary_needs_the_standard_library_alone() -> None:
    imported = {
        (node.module or "" if isinstance(node, ast.ImportFrom) else alias.name).partition(".")[0]
        for path in (ROOT / "domain").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported - sys.stdlib_module_names == {"domain"}


def test_every_engine_is_independent() -> None:
    (contract,) = [each for each in contracts() if "tuner.engines.runtime" in each.get("layers", ())]
    engines = {f"tuner.engines.{path.parent.name}" for path in (ROOT / "tuner" / "engines").glob("*/__main__.py")}
    assert set(contract["layers"][0].split(" | ")) == engines


def test_no_test_changes_the_clock_of_the_process() -> None:
    """A server in another thread that goes to sleep by such a clock may never wake up: patch a module's ``time``."""
    others = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    assert [str(path) for path in others if re.search(r"setattr\(\s*time\b|\.time\.\w+\"", path.read_text())] == []


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "README.md").read_text()
    assert [path.name for path in sorted(folder.glob("0*.md")) if f"({path.name})" not in listed] == []


def test_every_page_is_linked() -> None:
    text = (ROOT / "README.md").read_text()
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions"]
    assert [str(path) for path in pages if path.relative_to(ROOT).as_posix() not in text] == []
