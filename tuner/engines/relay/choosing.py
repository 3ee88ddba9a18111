"""Choice of the record to use for each workload of a network: the fastest operator is not always the best neighbour.

The cost of rearranging a tensor is measured once per process and thread count, with a handful of kernels.
``AlterOpLayout``'s transforms are separate kernels, because convolutions fuse with elementwise operators only. Their
time depends on the number of elements and on how vectors meet blocks. On a Zen 4, in ns per element, from 30 thousand
to a million elements: packing NCHW 0.15 for any block, splitting blocks 0.05 to 0.21, merging or mixing them 0.40 to
0.48 (one element at a time), unpacking 0.34 from blocks of 8 and 0.65 from 16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import tvm
from tvm import te, topi

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import corrections, defaults, graph_layout, graph_layout_reading, importing, workloads
from tuner.engines.relay.graph_layout import PLAIN, LayoutNetwork
from tuner.engines.relay.templates import dispatching
from tuner.engines.relay.workloads import Pair
from tuner.engines.runtime import faults
from tuner.engines.runtime.targets import native_cpu

LAUNCH_SECONDS = 5e-7
"""Launch cost, in seconds, of any kernel in a graph executor, however small the tensor."""
_SHAPE = (1, 48, 26, 26)
"""Shape of the measured tensor: 127 KiB, which fits in the L2 cache like most tensors between convolutions."""
_REPEATS = 15
_RUNS = 40


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Transform costs in seconds per element; the defaults were measured on a Zen 4."""

    pack: float = 0.15e-9
    unpack_8: float = 0.34e-9
    unpack_16: float = 0.65e-9
    split: float = 0.12e-9
    merge: float = 0.42e-9

    def seconds(self, elements: int, block: int, other: int) -> float:
        """Return the seconds to rearrange a tensor from channel blocks of one size to another; 0 is NCHW."""
        return 0.0 if block == other else LAUNCH_SECONDS + elements * self._rate(block, other)

    def _rate(self, block: int, other: int) -> float:
        if not block:
            return self.pack
        if not other:
            slope = (self.unpack_16 - self.unpack_8) / 8
            return max(self.pack, self.unpack_8 + slope * (min(block, 16) - 8))
        return self.split if block % other == 0 else self.merge


_MEASURED = {"pack": (0, 16), "unpack_8": (8, 0), "unpack_16": (16, 0), "split": (16, 8), "merge": (8, 16)}


def transform_costs(target: Any, threads: int) -> Costs:
    """Return measured costs if ``target`` is this machine, else the defaults."""
    if "mtriple" in target.attrs or str(target.attrs.get("mcpu", "")) != native_cpu(tvm):
        return Costs()
    return _measured_costs(str(target), threads)


@lru_cache(maxsize=8)
def _measured_costs(target: str, threads: int) -> Costs:
    """Measure the costs, which takes less than a second."""
    # Not stored: processes that handle untrusted models share no files.
    corrections.use_threads(threads)
    try:
        return Costs(**{name: _per_element(tvm.target.Target(target), *pair) for name, pair in _MEASURED.items()})
    finally:
        corrections.use_threads(1)


def _per_element(target: Any, block: int, other: int) -> float:
    library, shapes = _kernel(target, block, other)
    arrays = [tvm.nd.empty(shape, "float32") for shape in shapes]
    evaluator = library.time_evaluator(library.entry_name, tvm.cpu(), number=_RUNS, repeat=_REPEATS)
    return float(min(evaluator(*arrays).results)) / math.prod(_SHAPE)


def _kernel(target: Any, block: int, other: int) -> tuple[Any, list[tuple[int, ...]]]:
    batch, channels, height, width = _SHAPE
    shape = (batch, channels // block, height, width, block) if block else _SHAPE
    source = te.placeholder(shape, name="source")
    with target, tvm.transform.PassContext(opt_level=3):
        moved = topi.layout_transform(source, _name(block), _name(other))
        library = tvm.build(topi.x86.schedule_injective(moved), [source, moved], target)
    return library, [shape, tuple(int(size) for size in moved.shape)]


def _name(block: int) -> str:
    return f"NCHW{block}c" if block else "NCHW"


TRANSFORM_SECONDS = 1e-6
"""Fixed cost of one layout transform, in seconds, however small the tensor."""
TRANSFORM_SECONDS_PER_ELEMENT = 1e-9
"""Seconds per element read and written once from a shared cache: 0.8 to 1.5 ns measured for float32 on two cores."""

GRAPH_LAYOUTS = ("dp", "none")


def of_network(params: Json, target: Any, pairs: Sequence[Pair], load: Callable[[], importing.Imported]) -> list[Pair]:
    """Return the records to build a request's network with; ``load`` returns the network.

    Raises EngineFailure ``invalid_option``.
    """
    layout = (params.get("options") or {}).get("graph_layout") or GRAPH_LAYOUTS[0]
    faults.require_known("graph_layout", layout, GRAPH_LAYOUTS)
    pairs = [pair for pair in pairs if dispatching.is_allowed(pair[0].task.name, rewrite=bool(params.get("rewrite")))]
    alone = choose(pairs)
    if layout == "none" or not alone:
        return alone
    return together(pairs, alone, graph_layout_reading.read(load(), target), target, int(params["threads"]))


def together(
    pairs: Sequence[Pair], alone: Sequence[Pair], network: LayoutNetwork, target: Any, threads: int
) -> list[Pair]:
    """Return the records that are fastest together for the network's convolutions, and ``alone`` for the rest.

    TVM uses the fastest implementation that has a record, so only the chosen one among a convolution's alternatives
    keeps its record.
    """
    recorded = graph_layout_reading.by_workload(pairs)
    states = graph_layout_reading.of_network(network, recorded, lambda key: _untuned_blocks(key, str(target)))
    costs = transform_costs(target, threads)
    found = graph_layout.assign(network, states, costs.seconds)
    chosen = [pairs[int(state.name)] for state in found.states.values() if state.name is not None]  # type: ignore[call-overload]
    decided = {key for group in states for key in group}
    others = [pair for pair in alone if workloads.key(pair[0].task) not in decided]
    return [*_distinct(chosen), *others]


def _distinct(pairs: Sequence[Pair]) -> list[Pair]:
    """Keep the first record of each workload: convolutions that AutoTVM cannot distinguish form several groups."""
    by_key: dict[str, Pair] = {}
    for pair in pairs:
        by_key.setdefault(workloads.key(pair[0].task), pair)
    return list(by_key.values())


def choose(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pair with the lowest latency for each workload, including the layout transforms it would cause.

    A schedule that blocks channels unlike the untuned build is charged one transform for its input and one for its
    output, as if no neighbour followed. So small tensors use whatever schedule is fastest, and large ones change their
    layout only if the gain pays for moving them. TVM's graph tuner searches the same trade-off over the whole graph
    (Liu et al., USENIX ATC 2019, section 3.3).
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
    """Estimate the seconds of the layout transforms that a ``MeasureInput``'s schedule adds to a network."""
    untuned = _untuned_blocks(workloads.key(measured.task), str(measured.target))
    blocks = graph_layout_reading.blocks(measured.task.name, measured.config)
    if not any(untuned) or not any(blocks):
        return 0.0
    return sum(
        TRANSFORM_SECONDS + elements * TRANSFORM_SECONDS_PER_ELEMENT
        for elements, block, other in zip(_elements(measured.task), blocks, untuned, strict=True)
        if block != other
    )


@lru_cache(maxsize=4096)
def _untuned_blocks(workload_key: str, target: str) -> graph_layout_reading.Blocks:
    """Return the blocks of the untuned build's schedule."""
    if "NCHWc" not in workload_key:
        return PLAIN, PLAIN
    task = workloads.task(workload_key, target)
    return graph_layout_reading.blocks(task.name, defaults.fallback(task))


def _elements(task: Any) -> tuple[int, int]:
    """Return the numbers of input and output elements of a convolution from its AutoTVM arguments."""
    data, kernel, strides = task.args[0][1], task.args[1][1], task.args[2]
    # A depthwise kernel is (channels, multiplier, height, width).
    channels = kernel[0] * kernel[1] if task.name.startswith("depthwise") else kernel[0]
    down, across = (strides, strides) if isinstance(strides, int) else strides
    output = data[0] * channels * math.ceil(data[2] / down) * math.ceil(data[3] / across)
    return math.prod(data), output
