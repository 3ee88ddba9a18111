"""The table of ``docs/coverage.md``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.coverage_cell import ROUTES

_HEAD = """# What works with which model

Found out by `./run bench coverage --write`, which asks the engines themselves; never edited by hand.

* **imports**: the engine takes the model.
* **verified**: its untuned build computes what ONNX Runtime computes, on three seeded inputs.
* **tuned**: a few trials of its heaviest tuning tasks worked, and a build with their records is right as well.

How fast a model becomes is another question: ask `tunesmith tune`.

"""


def text(rows: Sequence[dict[str, Any]]) -> str:
    routes = [route for route in ROUTES if any(row["route"] == route for row in rows)]
    models = list(dict.fromkeys(row["model"] for row in rows))
    cells = {(row["model"], row["route"]): row for row in rows}
    lines = [f"| model | {' | '.join(routes)} |", f"|---|{'---|' * len(routes)}"]
    for model in models:
        shown = [_cell(cells.get((model, route))) for route in routes]
        lines.append(f"| {model} | {' | '.join(shown)} |")
    reasons = [f"* {row['model']}, {row['route']}: {_plain(row['reason'])}" for row in rows if row["reason"]]
    tail = ["", "## Why not", "", *reasons] if reasons else []
    return _HEAD + "\n".join([*lines, *tail]) + "\n"


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not tried"
    if row["tuned"]:
        return "tuned"
    if row["verified"]:
        return "verified, not tuned"
    return "imports, **wrong or not built**" if row["imports"] else "—"


def _plain(reason: str) -> str:
    return reason.replace("|", "\\|").replace("<", "&lt;")
