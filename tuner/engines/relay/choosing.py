"""Which record of each workload to build a network with: the fastest operator is not always the best neighbour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from tvm.autotvm.task.space import FallbackConfigEntity

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import defaults, graph_layout, graph_layout_reading, importing, transform_costs, workloads
from tuner.engines.relay.graph_layout import Network
from tuner.engines.relay.templates import dispatching

TRANSFORM_SECONDS = 1e-6
"""Of one layout transform, however small the tensor."""
TRANSFORM_SECONDS_PER_ELEMENT = 1e-9
"""Read and written once, out of a shared cache: 0.8 to 1.5 ns measured for float32 on two cores."""

Pair = Any
"""``(MeasureInput, MeasureResult)``"""


GRAPH_LAYOUTS = ("dp", "none")


def of_network(params: Json, target: Any, pairs: Sequence[Pair], load: Callable[[], importing.Imported]) -> list[Pair]:
    """What a request's network is built with; ``load`` gives the network. Raises EngineFailure ``invalid_option``."""
    layout = (params.get("options") or {}).get("graph_layout") or GRAPH_LAYOUTS[0]
    if layout not in GRAPH_LAYOUTS:
        raise EngineFailure("invalid_option", f"graph_layout {layout!r} is none of {', '.join(GRAPH_LAYOUTS)}")
    pairs = [pair for pair in pairs if dispatching.is_allowed(pair[0].task.name, rewrite=bool(params.get("rewrite")))]
    alone = choose(pairs)
    if layout == "none" or not alone:
        return alone
    return together(pairs, alone, _network(load(), target), target, int(params["threads"]))


def together(pairs: Sequence[Pair], alone: Sequence[Pair], network: Network, target: Any, threads: int) -> list[Pair]:
    """One record for each convolution of the network, those that are fastest together, and ``alone`` for the rest.

    Of implementations that compete for a convolution only the chosen one keeps its record, as TVM takes the fastest
    that has any.
    """
    recorded = graph_layout_reading.by_workload(pairs)
    states = graph_layout_reading.of_network(network, recorded, lambda key: _blocks_untuned(key, str(target)))
    costs = transform_costs.of(target, threads)
    found = graph_layout.assign(network, states, costs.seconds)
    chosen = [pairs[int(state.name)] for state in found.states.values() if state.name is not None]  # type: ignore[call-overload]
    decided = {key for group in states for key in group}
    others = [pair for pair in alone if workloads.key(pair[0].task) not in decided]
    return [*_distinct(chosen), *others]


def _distinct(pairs: Sequence[Pair]) -> list[Pair]:
    """Convolutions that differ in nothing that AutoTVM knows are several groups of one workload: the first decides."""
    by_key: dict[str, Pair] = {}
    for pair in pairs:
        by_key.setdefault(workloads.key(pair[0].task), pair)
    return list(by_key.values())


_read: list[tuple[Any, str, Network]] = []


def _network(imported: importing.Imported, target: Any) -> Network:
    """The last one is kept: ``choose``, ``compile`` and ``audit`` ask for the same, and reading it takes seconds."""
    if not _read or _read[0][0] is not imported.module or _read[0][1] != str(target):
        _read[:] = [(imported.module, str(target), graph_layout_reading.read(imported, target))]
    return _read[0][2]


def _blocks_untuned(workload_key: str, target: str) -> tuple[int, int]:
    found = _untuned_blocks(workload_key, target)
    takes, gives = (found.get(knob, 0) for knob in defaults.LAYOUT_KNOBS)
    return takes, gives


def choose(pairs: Sequence[Pair]) -> list[Pair]:
    """One valid pair a workload: the shortest latency, counting the layout transforms that it would cause.

    A schedule that blocks channels unlike the untuned build is charged one transform for its input and one for its
    output, as if no neighbour followed. So small tensors take whatever schedule is fastest, and large ones change
    their layout only for a gain that pays for moving them. TVM's graph tuner searches the same trade-off over the
    whole graph (Liu et al., USENIX ATC 2019, section 3.3).
    """
    best: dict[str, tuple[float, Pair]] = {}
    for pair in workloads.sound(pairs):
        measured, result = pair
        if result.error_no != 0:
            continue
        key = workloads.key(measured.task)
        cost = float(np.mean(result.costs)) + transform_seconds(measured)
        if key not in best or cost < best[key][0]:
            best[key] = (cost, pair)
    return [pair for _, pair in best.values()]


def transform_seconds(measured: Any) -> float:
    """Estimated seconds of the layout transforms that a ``MeasureInput``'s schedule adds to a network."""
    untuned = _untuned_blocks(workloads.key(measured.task), str(measured.target))
    blocks = _blocks(measured.config)
    if not untuned or not blocks:
        return 0.0
    elements = dict(zip(defaults.LAYOUT_KNOBS, _elements(measured.task), strict=True))
    return sum(
        TRANSFORM_SECONDS + elements[knob] * TRANSFORM_SECONDS_PER_ELEMENT
        for knob in defaults.LAYOUT_KNOBS
        if blocks.get(knob) != untuned.get(knob)
    )


@lru_cache(maxsize=4096)
def _untuned_blocks(workload_key: str, target: str) -> dict[str, int]:
    """Channel block by knob; empty for a template that does not block channels."""
    if "NCHWc" not in workload_key:
        return {}
    task = workloads.task(workload_key, target)
    fallback = FallbackConfigEntity()
    with task.target:
        task.instantiate(fallback)
    return _blocks(fallback)


def _blocks(config: Any) -> dict[str, int]:
    entities = config._entity_map
    return {knob: int(entities[knob].size[-1]) for knob in defaults.LAYOUT_KNOBS if knob in entities}


def _elements(task: Any) -> tuple[int, int]:
    """Of the input and of the output of a convolution, from its AutoTVM arguments (data, kernel, strides, …)."""
    data, kernel, strides = task.args[0][1], task.args[1][1], task.args[2]
    # A depthwise kernel is (channels, multiplier, height, width).
    channels = kernel[0] * kernel[1] if task.name.startswith("depthwise") else kernel[0]
    down, across = (strides, strides) if isinstance(strides, int) else strides
    output = data[0] * channels * math.ceil(data[2] / down) * math.ceil(data[3] / across)
    return math.prod(data), output
