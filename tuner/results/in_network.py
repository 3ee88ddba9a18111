"""Choice of schedules by the times of kernels inside the network.

The fastest schedule of an operator by itself has its data in the caches, where the operators before it have just been.
Inside the network, another one may be faster. Several builds of one network differ in the schedules of many operators
at once: each operator's time in each build tells which schedule suits it, so the choice takes a few builds instead of
one for each operator and schedule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

Layer = Mapping[str, Any]
"""One of the ``layers`` in the result of an engine's method ``profile``."""
Times = Mapping[str, float]
"""Seconds of one run in which the operators of a workload take part, by workload key."""
_PRODUCTS = ("conv", "dense", "matmul", "gemm")
"""Parts of the names of kernels that have tuning tasks."""
_SHAPE = re.compile(r"\d+(?:×\d+)+")
LEAST_GAIN = 0.03
"""Relative difference of two times of a kernel in one comparison below which they count as equal."""
_SHARE = 0.9
"""Share of the tuned operators' time that the candidates account for."""


def places(layers: Sequence[Layer], described: Mapping[str, str]) -> dict[str, list[int]]:
    """Return the positions of each workload's kernels among the layers of a network.

    ``described`` are the descriptions of tuning tasks by workload key. Kernels are recognized by the sizes of data and
    weights, which no layout changes; what fits several workloads, or none, is left out.
    """
    workloads: dict[tuple[int, ...], list[str]] = {}
    for key, description in described.items():
        workloads.setdefault(_sizes_of_task(description), []).append(key)
    found: dict[str, list[int]] = {}
    for place, layer in enumerate(layers):
        fitting = {key for sizes in _sizes_of_kernel(layer) for key in workloads.get(sizes, ())}
        if len(fitting) == 1:
            found.setdefault(fitting.pop(), []).append(place)
    return found


def costly(times: Times) -> list[str]:
    """Return the workloads that account for most of the time, the longest first."""
    ordered = sorted(times, key=lambda key: -times[key])
    total, sum_so_far, found = math.fsum(times.values()), 0.0, []
    for key in ordered:
        if sum_so_far >= _SHARE * total:
            break
        found.append(key)
        sum_so_far += times[key]
    return found


def times(runs: Sequence[Sequence[Layer]], of: Mapping[str, Collection[int]]) -> dict[str, float]:
    """Return each workload's seconds in the quickest of several profiles of one build."""
    return {key: min(math.fsum(run[place]["seconds"] for place in found) for run in runs) for key, found in of.items()}


def are_alike(one: Sequence[Layer], other: Sequence[Layer]) -> bool:
    """Whether two builds have the same kernels in the same places, so that their times can be compared."""
    return [_results(layer) for layer in one] == [_results(layer) for layer in other]


def better(base: Times, others: Sequence[Times]) -> dict[str, int]:
    """Return the workloads that are clearly faster in one of the other builds, with that build's position."""
    found = {}
    for key, seconds in base.items():
        best = min(range(len(others)), key=lambda place: others[place].get(key, math.inf), default=None)
        if best is not None and others[best].get(key, math.inf) < (1 - LEAST_GAIN) * seconds:
            found[key] = best
    return found


def _sizes_of_task(description: str) -> tuple[int, ...]:
    shapes = [text.split("×") for text in _SHAPE.findall(description.partition("→")[0])]
    return tuple(math.prod(map(int, shape)) for shape in shapes[:2])


def _sizes_of_kernel(layer: Layer) -> list[tuple[int, ...]]:
    """Return the sizes of data and of each tensor that may be the weights."""
    if not layer.get("inputs") or not any(part in layer["name"] for part in _PRODUCTS):
        return []
    data, *others = map(math.prod, layer["inputs"])
    return [(data, size) for size in (*map(math.prod, layer["weights"]), *others[:1])]


def _results(layer: Layer) -> tuple[list[list[int]], ...]:
    return layer.get("inputs", []), layer.get("outputs", [])
