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

    ``described`` are the descriptions of tuning tasks by workload key. Products are recognized by the sizes of data and
    weights, which no layout changes, other kernels by their operators and the sizes of all arguments and results; what
    fits several workloads, or none, is left out.
    """
    workloads: dict[object, list[str]] = {}
    for key, description in described.items():
        known = sizes_of_task(description) if is_product(description) else _form_of_task(description)
        workloads.setdefault(known, []).append(key)
    found: dict[str, list[int]] = {}
    for place, layer in enumerate(layers):
        forms = sizes_of_kernel(layer) if is_product(layer["name"]) else [_form_of_kernel(layer)]
        fitting = {key for form in forms for key in workloads.get(form, ())}
        if len(fitting) == 1:
            found.setdefault(fitting.pop(), []).append(place)
    return found


def share_of_others(layers: Sequence[Layer]) -> float:
    """Return the share of a network's time that kernels take which are no products."""
    total = math.fsum(layer["seconds"] for layer in layers)
    others = math.fsum(layer["seconds"] for layer in layers if not is_product(layer["name"]))
    return others / total if total else 0.0


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


def is_chained(name: str) -> bool:
    """Whether a kernel or task of this name computes two products (``chains``, ``attention`` of ``engines.relax``)."""
    return name.startswith("chained")


def is_attention(name: str) -> bool:
    """Whether these are the products of an attention, and the softmax between them."""
    return name.startswith("chained_attention")


def sizes_of_task(description: str) -> tuple[int, ...]:
    """Return the sizes of the data and weights of a product; of two, also that of the result."""
    arguments, _, result = description.partition("→")
    shapes = _SHAPE.findall(arguments)[:2] + _SHAPE.findall(result if is_chained(description) else "")
    return tuple(math.prod(map(int, shape.split("×"))) for shape in shapes)


def sizes_of_kernel(layer: Layer) -> list[tuple[int, ...]]:
    """Return such sizes for each tensor that may be the weights."""
    if not layer.get("inputs"):
        return []
    data, *others = map(math.prod, layer["inputs"])
    results = [math.prod(shape) for shape in layer["outputs"]] if is_chained(layer["name"]) else []
    return [(data, size, *results) for size in (*map(math.prod, layer["weights"]), *others[:1])]


_Form = tuple[str, tuple[int, ...], tuple[int, ...]]
"""Operators, as far as kernels' names are never cut off, and the sizes of arguments and results in ascending order."""
_NAME = 60


def is_product(name: str) -> bool:
    """Whether a kernel of this name computes a convolution or a matrix product."""
    return any(part in name for part in _PRODUCTS)


def _form_of_task(description: str) -> _Form:
    operators, _, shapes = description.partition(" ")
    sizes = [
        sorted(math.prod(map(int, shape.split("×"))) for shape in re.findall(r"\d+(?:×\d+)*", part))
        for part in shapes.partition("→")[::2]
    ]
    return _operators(operators.replace("+", "_").replace(".", "_")), tuple(sizes[0]), tuple(sizes[1])


def _form_of_kernel(layer: Layer) -> _Form:
    arguments = [*layer.get("inputs", []), *layer.get("weights", [])]
    sizes = [tuple(sorted(map(math.prod, shapes))) for shapes in (arguments, layer.get("outputs", []))]
    return _operators(re.sub(r"_\d+$", "", layer["name"].removeprefix("fused_"))), sizes[0], sizes[1]


def _operators(name: str) -> str:
    return name.replace("nn_", "").replace("contrib_", "")[:_NAME]


def _results(layer: Layer) -> tuple[list[list[int]], ...]:
    return layer.get("inputs", []), layer.get("outputs", [])
