"""What a bundle's evidence says that it runs in, and how that compares with a run on this machine."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_MOST_BYTES = 64 * 1024**2
_AGREEING = 1.1
"""Times that differ by a smaller factor agree: on a quiet machine medians do."""


@dataclass(frozen=True, kw_only=True)
class Published:
    median: float
    """Seconds per run."""
    device: str
    threads: int
    same_device: bool
    """Whether this machine is of that kind: processor, vector features and threads."""
    noisy: bool
    """Whether the machine was busy then."""


def read(evidence: Path, *, device_key: str, threads: int, same_device: bool) -> Published | None:
    """None where nothing was measured. A bundle may come from anywhere, and say anything."""
    try:
        if evidence.stat().st_size > _MOST_BYTES:
            return None
        said = json.loads(evidence.read_bytes())
        median = float(said["benchmark"][said["published"]]["median"])
        conditions = said.get("conditions") or {}
        device, noisy = str(conditions.get("device", device_key)), bool(conditions.get("noisy"))
    except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not 0 < median < float("inf"):
        return None
    # Terminals obey what else it might hold.
    device = "".join(filter(str.isprintable, device))
    return Published(median=median, device=device, threads=threads, same_device=same_device, noisy=noisy)


def told(published: Published, samples: Sequence[float], threads: int) -> list[str]:
    """The published median, and a sentence of that of ``samples``, taken here, where the two differ."""
    place = "a device like this one" if published.same_device else "another device"
    device = f"{published.device}, {_counted(published.threads)}"
    said = [f"Published: {published.median * 1000:.3f} ms on {place} ({device})."]
    median = statistics.median(samples)
    ratio = median / published.median
    if not 1 / _AGREEING <= ratio <= _AGREEING:
        disturbed = ratio > 1 and median > min(samples) * _AGREEING
        said.append(f"Here it took {ratio:.2f} times as long: {_why(published, threads, disturbed=disturbed)}.")
    return said


def _why(published: Published, threads: int, *, disturbed: bool) -> str:
    if threads != published.threads:
        return f"it ran with {_counted(threads)}"
    if not published.same_device:
        return "the devices differ"
    if disturbed:
        return "its samples vary as they do while other programs run"
    if published.noisy:
        return "the machine was busy when it was published, so take that time as rough"
    return "other programs ran during one of the two measurements, or the clocks differed"


def _counted(threads: int) -> str:
    return f"{threads} thread{'s' if threads != 1 else ''}"
