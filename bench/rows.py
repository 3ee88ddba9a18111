"""Rows of a benchmark in a file, so that an interrupted run continues."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
Row = dict[str, Any]
_PRODUCT = (
    "api", "domain", "process", "serve", "storage", "tuner", "tunesmith", "worker", "requirements", "pyproject.toml"
)  # fmt: skip
"""What decides the numbers of a row."""


def commit() -> str:
    """Return the last commit that changed the product, with ``-dirty`` if files of it are changed since.

    Commits of rows, benchmarks, tests and pages change nothing that is measured. ``unknown`` outside a checkout.
    """
    last = _git("log", "-1", "--abbrev=12", "--format=%h", "--", *_PRODUCT)
    changed = _git("status", "--porcelain", "--", *_PRODUCT)
    return f"{last}-dirty" if last and changed else last or "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def read(path: Path) -> list[Row]:
    return list(json.loads(path.read_text())) if path.exists() else []


def has(row: Row, facts: Mapping[str, Any]) -> bool:
    """Return whether a row was measured with these facts: commit, CPU and settings."""
    return all(row.get(name) == value for name, value in facts.items())


def save(path: Path, rows: Sequence[Row]) -> None:
    """Write the file atomically, a line for each row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    partial.replace(path)
