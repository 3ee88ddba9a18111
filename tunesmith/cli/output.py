"""Output of the commands: plain text, tables and JSON."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import Any


def line(text: str = "") -> None:
    sys.stdout.write(text + "\n")


def paragraph(text: str) -> None:
    """Print ``text`` wrapped to the width of the terminal."""
    line(textwrap.fill(text, width(), break_long_words=False, break_on_hyphens=False))


def note(text: str) -> None:
    """Print to standard error, so that results on standard output can be piped."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def error(code: str, message: str, hint: str | None) -> None:
    sys.stdout.flush()
    note(f"error[{code}]: {message}")
    if hint:
        note(f"hint: {hint}")


def document(value: Any) -> None:
    line(json.dumps(value, indent=2, ensure_ascii=False))


def answer(value: Any, text: str, *, as_json: bool) -> None:
    """Print ``value`` as JSON, or ``text``."""
    document(value) if as_json else line(text)


def width() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, optional: Sequence[str] = (), right: bool = False
) -> list[str]:
    """Return aligned lines. On a narrow terminal, ``optional`` columns are omitted, the last one first.

    Numeric columns are right-aligned, and with ``right`` all but the first.
    """
    shown = list(range(len(headers)))
    sizes = [max(len(cell) for cell in (header, *(row[place] for row in rows))) for place, header in enumerate(headers)]
    for header in reversed(optional):
        if sum(sizes[place] + 2 for place in shown) - 2 <= width():
            break
        shown.remove(headers.index(header))
    return [
        "  ".join(_aligned(line_[place], sizes[place], rows, place, right=right) for place in shown).rstrip()
        for line_ in (headers, *rows)
    ]


def _aligned(cell: str, size: int, rows: Sequence[Sequence[str]], place: int, *, right: bool) -> str:
    numeric = bool(rows) and all(row[place][:1].isdigit() or row[place] in ("", "-") for row in rows)
    return cell.rjust(size) if numeric or (right and place) else cell.ljust(size)


def listing(headers: Sequence[str], rows: Sequence[Sequence[str]], *, optional: Sequence[str], empty: str) -> None:
    if not rows:
        note(empty)
        return
    for text in table(headers, rows, optional=optional):
        line(text)


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def latency(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.2f} µs"


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def when(text: str) -> str:
    """Format an ISO 8601 time in the local time zone."""
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")


def shape(dimensions: Sequence[Any]) -> str:
    return "×".join("?" if size_ is None else str(size_) for size_ in dimensions) or "scalar"
