from __future__ import annotations

import tomllib
from pathlib import Path

import tunesmith
from domain import release


def test_the_package_and_the_service_are_the_same_release() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == release.VERSION == tunesmith.__version__
