"""How much tuning may take, and the forms in which people write it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tunesmith import errors

_SECONDS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_PART = re.compile(r"(?P<number>\d{1,15}(?:\.\d{1,15})?)\s*(?P<unit>[a-z]*)")
_HINT = "Write seconds as a number, or as in '300s', '10m', '1.5h', '200 trials' or '200 trials, 10m'."


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Tuning ends at the first limit reached, with the best found so far."""

    trials: int | None = None
    seconds: float | None = None


def parse(text: str) -> Budget:
    """``300``, ``300s``, ``10m``, ``1h``, ``200 trials``, or two of them with a comma. Raises InvalidInput."""
    trials: int | None = None
    seconds: float | None = None
    for part in text.split(","):
        match = _PART.fullmatch(part.strip().lower())
        if match is None:
            raise _wrong(text)
        number, unit = match["number"], match["unit"].removesuffix("s") or "s"
        if unit == "trial" and trials is None and number.isdecimal():
            trials = int(number)
        elif unit in _SECONDS and seconds is None:
            seconds = float(number) * _SECONDS[unit]
        else:
            raise _wrong(text)
    return Budget(trials=trials, seconds=seconds)


def of(value: Budget | float | str) -> Budget:
    """Of anything that ``Client.tune`` takes: a number is seconds. Raises InvalidInput."""
    if isinstance(value, str):
        return parse(value)
    found = value if isinstance(value, Budget) else Budget(seconds=float(value))
    if found.seconds is not None and not math.isfinite(found.seconds):
        raise _wrong(str(found.seconds))
    return found


def _wrong(text: str) -> errors.InvalidInput:
    return errors.InvalidInput(f"budget {text[:80]!r} cannot be read", code="invalid_budget", hint=_HINT)
