"""Conditions of a measurement: other load on the machine, and whether it was too high."""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from domain.artifacts import Conditions, Timing
from domain.targets import Device
from tuner.results import machine_code, timing

Name = TypeVar("Name", bound=str)

WIDEST_INTERVAL = 0.04
"""Limit of the width of a confidence interval, relative to the median, or of a ratio's relative to its lower bound."""
MOST_DRIFT = 0.05
"""Limit of the drift of the calibration loop; beyond it, the clock changed or the core was shared."""
ATTEMPTS = 3
_LOOP = 20_000
_CALIBRATIONS = 5
_PARTS = 3
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_CHAIN = bytes.fromhex("48 0f af c0" * 8 + "48 ff cf 75 db c3")
"""x86-64: ``do { rax *= rax, eight times } while (--rdi)``. Each product waits for the one before."""
_CHAIN_TURNS = 10_000
_CHAIN_CYCLES = _CHAIN_TURNS * 8 * 3
"""A 64-bit product has taken three cycles in every core since 2008 (Fog, Instruction tables)."""
_LOADAVG = Path("/proc/loadavg")


@dataclass(kw_only=True)
class Watch:
    """Observes the machine in pauses of a benchmark, when none of our programs run."""

    calibrate: Callable[[], float] = field(default=lambda: calibration())
    _loops: list[float] = field(default_factory=list)
    _loads: list[float] = field(default_factory=list)
    _clocks: list[float] = field(default_factory=list)

    def look(self) -> None:
        others = runnable()
        if others is not None:
            self._loads.append(others)
        measured = clock()
        if measured is not None:
            self._clocks.append(measured)
        self._loops.append(self.calibrate())

    def add(self, other: Watch) -> None:
        """Add what another one saw later."""
        self._loads += other._loads
        self._clocks += other._clocks
        self._loops += other._loops

    def conditions(self, device: Device, timings: Iterable[Timing], *, attempts: int = 1) -> Conditions:
        """Return the observed conditions, and the reasons for noisy timings."""
        load = statistics.fmean(self._loads) if self._loads else None
        drift = _drift(self._loops)
        reasons = tuple(_reasons(tuple(timings), drift))
        return Conditions(
            device=device.name,
            threads=device.threads,
            governor=governor(),
            megahertz=(min(self._clocks), max(self._clocks)) if self._clocks else None,
            load=load,
            drift=drift,
            attempts=attempts,
            noisy=bool(reasons),
            reasons=reasons,
        )


def until_quiet(
    measure: Callable[[Watch], dict[Name, Timing]], device: Device, *, seconds: float = math.inf
) -> tuple[dict[Name, Timing], Conditions]:
    """Return the first measurement that is quiet, or whose ratios are precise although it is noisy; if there is none,
    up to ``ATTEMPTS`` of them together.

    Rounds compare what was disturbed alike, so that ratios are often precise where times are not.
    To keep only the most precise one would choose among chances: its interval seldom holds what the others found.
    A measurement is repeated if another one as long fits into ``seconds``. ``measure`` must call the ``look`` of its
    argument while none of our programs run, and time the same builds each time. Raises errors of ``measure``.
    """
    noisy: list[dict[Name, Timing]] = []
    whole, started = Watch(), time.monotonic()
    for attempt in range(1, ATTEMPTS + 1):
        spent = time.monotonic() - started
        if noisy and spent * (1 + 1 / len(noisy)) > seconds:
            break
        watch = Watch()
        timings = measure(watch)
        found = watch.conditions(device, timings.values(), attempts=attempt)
        if not found.noisy or _has_precise_ratios(list(timings.values())):
            return timings, found
        noisy.append(timings)
        whole.add(watch)
    together = {name: timing.of_attempts([each[name] for each in noisy]) for name in noisy[0]}
    of_all = whole.conditions(device, together.values(), attempts=len(noisy))
    # A clock that varied within every attempt can have the same median in all of them.
    return together, replace(of_all, noisy=True, reasons=of_all.reasons or found.reasons)


def _has_precise_ratios(timings: Sequence[Timing]) -> bool:
    """Return whether it is known how many times as fast the fastest build is as each of the others."""
    fastest = min(timings, key=lambda each: each.median)
    intervals = [timing.speedup_interval(fastest, each) for each in timings if each is not fastest]
    return bool(intervals) and all(each and each[1] <= each[0] * (1 + WIDEST_INTERVAL) for each in intervals)


def calibration() -> float:
    """Return the seconds of a fixed calculation on one core, the best of several; depends on clock and other load."""
    return min(_loop() for _ in range(_CALIBRATIONS))


def governor() -> str | None:
    return _text(_GOVERNOR) or None


def clock() -> float | None:
    """Return the clock of the current core in MHz, from the duration of a known number of cycles.

    The kernel's figure is nominal in most virtual machines. None on other processors than x86-64, and where memory may
    not be made executable.
    """
    with contextlib.suppress(OSError):
        return max(_CHAIN_CYCLES / _seconds_of_chain() / 1e6 for _ in range(_CALIBRATIONS))
    return None


def runnable() -> float | None:
    """Return the number of other runnable threads; None if unknown."""
    fields = _text(_LOADAVG).split()
    return max(0.0, float(fields[3].partition("/")[0]) - 1) if len(fields) > 3 else None


def _seconds_of_chain() -> float:
    chain = _chain()
    started = time.perf_counter()
    chain(_CHAIN_TURNS)
    return time.perf_counter() - started


@functools.cache
def _chain() -> Callable[[int], None]:
    """Raises OSError if this processor or kernel cannot run it."""
    return machine_code.function(_CHAIN)


def _loop() -> float:
    started = time.perf_counter()
    total = 0
    for number in range(_LOOP):
        total += number
    return time.perf_counter() - started


def _drift(loops: Sequence[float]) -> float | None:
    """Return the change of the loop's median between parts of a benchmark; short disturbances show in the
    intervals instead."""
    if len(loops) < _PARTS:
        return None
    size = len(loops) / _PARTS
    parts = [statistics.median(loops[round(part * size) : round((part + 1) * size)]) for part in range(_PARTS)]
    return max(parts) / min(parts) - 1


def _reasons(timings: Sequence[Timing], drift: float | None) -> Iterable[str]:
    width = _width(timings)
    if width > WIDEST_INTERVAL:
        yield f"the 95 % confidence interval of a median is {width:.0%} wide"
    if drift is not None and drift > MOST_DRIFT:
        yield f"the calibration loop varied by {drift:.0%}"


def _width(timings: Iterable[Timing]) -> float:
    """Return the largest width of a confidence interval relative to its median; 0 for too few samples."""
    widths = [
        (each.ci_high - each.ci_low) / each.median
        for each in timings
        if each.ci_low is not None and each.ci_high is not None
    ]
    return max(widths, default=0.0)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
