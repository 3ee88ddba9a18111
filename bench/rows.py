"""Rows of a benchmark in a file, so that an interrupted run continues."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
Row = dict[str, Any]


def commit() -> str:
    """Return the checkout's commit, with ``-dirty`` if files are changed; ``unknown`` outside a checkout."""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def read(path: Path) -> list[Row]:
    return list(json.loads(path.read_text())) if path.exists() else []


def save(path: Path, rows: Sequence[Row]) -> None:
    """Write the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(rows, indent=1))
    partial.replace(path)
