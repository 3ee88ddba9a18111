"""The import contracts name every module that they are about."""

from __future__ import annotations

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
    parts = {
        f"tuner.{path.stem}" for path in (ROOT / "tuner").iterdir() if path.suffix == ".py" or path.name == "native"
    }
    assert parts - {"tuner.__init__"} <= set(contract["source_modules"])


def test_every_engine_is_independent() -> None:
    (contract,) = [each for each in contracts() if "tuner.engines.runtime" in each.get("layers", ())]
    engines = {f"tuner.engines.{path.parent.name}" for path in (ROOT / "tuner" / "engines").glob("*/__main__.py")}
    assert set(contract["layers"][0].split(" | ")) == engines


def test_every_module_of_the_client_speaks_http_alone() -> None:
    (contract,) = [each for each in contracts() if "tunesmith.client" in each.get("source_modules", ())]
    folder = ROOT / "tunesmith"
    packages = {path.parent for path in folder.glob("*/__init__.py")} - {folder / "cli"}
    modules = {f"tunesmith.{path.stem}" for path in [*folder.glob("*.py"), *packages]}
    assert modules - {"tunesmith.__init__", "tunesmith.__main__"} == set(contract["source_modules"])


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "README.md").read_text()
    assert [path.name for path in sorted(folder.glob("0*.md")) if f"({path.name})" not in listed] == []


def test_every_page_is_linked() -> None:
    text = (ROOT / "README.md").read_text()
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions"]
    assert [str(path) for path in pages if path.relative_to(ROOT).as_posix() not in text] == []
