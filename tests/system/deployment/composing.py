"""docker-compose.yml and docker/Dockerfile, read for tests."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docker"


def composition() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return found


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = composition()["services"]
    return found


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: each with its arguments, continued lines joined."""
    lines = [line for line in (FOLDER / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in joined.splitlines() if line.strip()]


def stages() -> dict[str, list[tuple[str, str]]]:
    """Instructions of each stage, by its name, with ``FROM`` first."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, arguments in instructions():
        if name == "FROM":
            found[arguments.split()[-1]] = []
        list(found.values())[-1].append((name, arguments))
    return found


def effective(stage: str, name: str) -> list[str]:
    """Arguments of an instruction in the stage and those that it is made from, the oldest first."""
    base = stages()[stage][0][1].split()[0]
    before = effective(base, name) if base in stages() else []
    return before + [arguments for each, arguments in stages()[stage] if each == name]


def is_ignored(path: str) -> bool:
    """Whether ``.dockerignore`` keeps a file of the checkout out of the build."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").removeprefix("**/")
            parts = [path, *(str(parent) for parent in Path(path).parents)]
            if any(fnmatch.fnmatch(part, pattern) or fnmatch.fnmatch(Path(part).name, pattern) for part in parts):
                ignored = not line.startswith("!")
    return ignored


def seconds(duration: str) -> float:
    """Of a duration such as ``20s`` or ``1m``."""
    number, unit = re.fullmatch(r"(\d+)(s|m)", duration).groups()  # type: ignore[union-attr]
    return float(number) * {"s": 1, "m": 60}[unit]
