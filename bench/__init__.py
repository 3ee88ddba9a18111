"""Benchmarks and the demo: programs that use the service as its users do."""

from __future__ import annotations

import json
import sys
from typing import Any


def show(report: dict[str, Any]) -> None:
    """Print a benchmark's report."""
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")


def note(line: str) -> None:
    """Report a benchmark's progress on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
