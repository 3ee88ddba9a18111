"""The faults and what came of them, as a table and as JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.system.faults.trying import Fault, Try

_HEADS = ("fault", "engines", "tries", "trials", "lost", "paid twice", "unreported", "recovered in", "verdict")


@dataclass(kw_only=True)
class Row:
    fault: Fault
    tries: list[Try] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Tries that never came to an end."""
    skipped: str | None = None

    @property
    def good(self) -> bool:
        return not self.broken and not any(each.wrong for each in self.tries)

    @property
    def verdict(self) -> str:
        if self.skipped:
            return f"not done: {self.skipped}"
        wrong = [*self.broken, *(text for each in self.tries for text in each.wrong)]
        if wrong:
            return "; ".join(dict.fromkeys(wrong))
        return f"fails with {self.fault.fails}, as it should" if self.fault.fails else "right"


def as_table(rows: Sequence[Row], seconds: float) -> str:
    """Markdown."""
    lines = [_line(_HEADS), _line(["---"] * len(_HEADS)), *(_line(_cells(row)) for row in rows)]
    good = sum(row.good and not row.skipped for row in rows)
    lines.append(f"\n{good} of {len(rows)} faults survived, in {seconds:.0f} s, on {os.cpu_count()} cores.")
    return "\n".join(lines) + "\n"


def as_json(rows: Sequence[Row], seconds: float) -> dict[str, Any]:
    faults = [
        {
            "fault": row.fault.name,
            "title": row.fault.title,
            "engines": row.fault.engines,
            "tries": len(row.tries) + len(row.broken),
            "lost": sum(each.lost for each in row.tries),
            "unreported": sum(each.unreported for each in row.tries),
            "paid_twice": sum(each.twice for each in row.tries),
            "recovered_in_seconds": [round(each.recovered, 2) for each in row.tries],
            "good": row.good,
            "verdict": row.verdict,
            "each": [asdict(each) for each in row.tries],
        }
        for row in rows
    ]
    return {"seconds": round(seconds, 1), "cores": os.cpu_count(), "faults": faults}


def folder(text: str) -> Path:
    """An argument: a folder, made if it is not there."""
    path = Path(text).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


def _cells(row: Row) -> list[str]:
    seconds = sorted(each.recovered for each in row.tries)
    span = f"{seconds[0]:.1f}" if seconds else "–"
    if len(seconds) > 1:
        span += f" – {seconds[-1]:.1f}"
    return [
        row.fault.title,
        "TVM" if row.fault.engines == "real" else "scripted",
        str(len(row.tries) + len(row.broken)),
        str(sum(each.trials for each in row.tries)),
        str(sum(each.lost for each in row.tries)),
        str(sum(each.twice for each in row.tries)),
        str(sum(each.unreported for each in row.tries)),
        f"{span} s" if seconds else "–",
        row.verdict,
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
