"""Formats of numbers and times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from domain import sizes
from domain.sizes import Choice

UNKNOWN = "–"
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_MILLISECONDS = re.compile(r"(?<![\w.])([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?) ms\b")
_LONGEST_SECONDS = 1e6
"""Longest time that is reformatted; quoted numbers in messages may have any size."""
_SIZES = ("B", "kB", "MB", "GB", "TB")
_AGES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def latency(seconds: float | None) -> str:
    """Format seconds with three digits in a suitable unit: ``1.23 ms``."""
    if seconds is None:
        return UNKNOWN
    factor, unit = next((entry for entry in _UNITS if abs(seconds) >= entry[0] * 0.9995), _UNITS[-1])
    return f"{digits(seconds / factor)} {unit}"


def sentence(text: str) -> str:
    """Reformat milliseconds in a text like the tables of the page: ``0.0661 ms`` becomes ``66.1 µs``."""
    return _MILLISECONDS.sub(_in_unit, text)


def _in_unit(found: re.Match[str]) -> str:
    seconds = float(found[1]) / 1000
    return latency(seconds) if seconds < _LONGEST_SECONDS else found[0]


def digits(value: float) -> str:
    """Format with three significant digits, without exponents: ``0.123``, ``12.3``, ``1234``."""
    magnitude = abs(value)
    places = 0 if magnitude >= 99.95 else 1 if magnitude >= 9.995 else 2
    return f"{value:.3g}" if 0.0001 <= magnitude < 0.1 else f"{value:.{places}f}"


def ratio(value: float | None) -> str:
    return UNKNOWN if value is None else f"{digits(value)}×"


def percent(share: float | None) -> str:
    """Format a share: 0.123 is ``12.3 %``."""
    if share is None:
        return UNKNOWN
    return f"{100 * share:.0f} %" if share >= 0.0995 or share == 0 else f"{100 * share:.1f} %"


def duration(seconds: float | None) -> str:
    """Format seconds: ``4.2 s``, ``3 min 20 s``, ``1 h 4 min``."""
    if seconds is None:
        return UNKNOWN
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def age(at: datetime | None, now: datetime) -> str:
    """Format the time since ``at`` in its largest unit: ``3 h``."""
    if at is None:
        return UNKNOWN
    seconds = max(0.0, (now - at).total_seconds())
    size, unit = next((entry for entry in _AGES if seconds >= entry[0]), _AGES[-1])
    return f"{int(seconds // size)} {unit}"


def moment(at: datetime | None) -> str:
    return UNKNOWN if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def size(count: int | None) -> str:
    """Format bytes in decimal units: ``1.23 MB``."""
    if count is None:
        return UNKNOWN
    value, unit = float(count), _SIZES[0]
    for unit in _SIZES:
        if value < 999.5 or unit == _SIZES[-1]:
            break
        value /= 1000
    return f"{count} B" if unit == "B" else f"{digits(value)} {unit}"


def count(number: float | None) -> str:
    """Format an integer with thin spaces between thousands."""
    return UNKNOWN if number is None else f"{number:,.0f}".replace(",", "\u202f")


def gflops(value: float | None) -> str:
    return UNKNOWN if value is None else f"{digits(value)} GFLOPS"


def shape(dimensions: Sequence[Choice | str | None]) -> str:
    """Format a shape: ``1×3×224×224``; a dynamic dimension is its symbol or a question mark, or several values."""
    return "×".join(map(_dimension, dimensions)) or "scalar"


def _dimension(value: Choice | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or "?"
    return f"({sizes.shown(value)})" if not isinstance(value, int) else str(value)


def words(name: str) -> str:
    """Format a code as words: ``run_timeout`` is ``run timeout``."""
    return name.replace("_", " ")


def toolchain(identity: str) -> str:
    """Format ``relay/tvm-0.19.0/llvm-22.1.8`` as ``relay, TVM 0.19.0, LLVM 22.1.8``; any other text is unchanged."""
    match = re.fullmatch(r"([^/]+)/tvm-([^/]+)/llvm-([^/]+)", identity)
    return "{}, TVM {}, LLVM {}".format(*match.groups()) if match else identity


_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.IGNORECASE)


def number(text: str) -> int | float | str:
    """Parse a number; any other text is returned unchanged."""
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) and len(text) < 40 else text
