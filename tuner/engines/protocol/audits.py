"""Which records make an operator compute something else than an untuned build does.

Each record's operator runs alone, in a process that may crash, beside the same operator without it. What that process
is asked, and how it compares, is up to the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.engines.protocol import children, faults
from tuner.engines.protocol.messages import Json

SECONDS = 300.0
"""For two builds and two runs of one operator, one of them without any schedule."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One record and the call that answers ``{max_abs, max_rel, wrong}``, ``{failed: why}`` or ``{skipped: why}``."""

    line: str
    """As the request's file has it."""
    function: str
    arguments: Sequence[Any]


def audit(checks: Iterable[Check], child: children.Child, on_progress: Callable[[], None] = lambda: None) -> Json:
    """``{checked, wrong: [{line, max_abs, max_rel}], failed: [{line, message}], skipped: [{line, message}]}``.

    ``on_progress`` is called before each check. Whatever wrote beside its arrays takes the process with it, so that
    no later check suffers.
    """
    checked, wrong, failed, skipped = 0, [], [], []
    for check in checks:
        on_progress()
        child.submit(check.function, check.arguments, SECONDS)
        outcome = child.fetch()
        found: Json = outcome.value or {"failed": faults.told(str(outcome.error))}
        if "failed" in found:
            failed.append({"line": check.line, "message": found["failed"]})
        elif "skipped" in found:
            skipped.append({"line": check.line, "message": found["skipped"]})
        elif found["wrong"]:
            wrong.append({"line": check.line, "max_abs": found["max_abs"], "max_rel": found["max_rel"]})
        checked += 1
        if outcome.error is not None or found.get("wrong"):
            child.kill()
    return {"checked": checked, "wrong": wrong, "failed": failed, "skipped": skipped}


def skip(lines: Iterable[str], reason: str) -> Json:
    """The answer where nothing can be run."""
    return {
        "checked": 0,
        "wrong": [],
        "failed": [],
        "skipped": [{"line": line, "message": reason} for line in lines],
    }
