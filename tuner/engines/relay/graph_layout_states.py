"""Which states records give a network's convolutions: every implementation adds its own.

A template of ours whose schedules block channels needs nothing here if its knobs ``tile_ic`` and ``tile_oc`` tell the
blocks of its input and its output; any other says them in ``BLOCKS``. What it takes and gives must be what its layout
hook asks ``AlterOpLayout`` for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tuner.engines.relay import defaults, graph_layout, soundness, workloads
from tuner.engines.relay.graph_layout import PLAIN, Network, State

Pair = Any
"""``(MeasureInput, MeasureResult)``"""
Blocks = tuple[int, int]
"""Of input and output; ``PLAIN`` where channels are not blocked."""

BLOCKS: dict[str, Callable[[Any], Blocks]] = {}
"""By the task names of templates: the blocks of a configuration."""


def blocks(name: str, config: Any) -> Blocks:
    """What a schedule of the AutoTVM task ``name`` takes and gives inside a network."""
    if name in BLOCKS:
        return BLOCKS[name](config)
    if "NCHWc" not in name:
        return PLAIN, PLAIN
    entities = config._entity_map
    takes, gives = (int(entities[knob].size[-1]) if knob in entities else PLAIN for knob in defaults.LAYOUT_KNOBS)
    return takes, gives


def by_workload(pairs: Sequence[Pair]) -> dict[str, list[State]]:
    """For each workload the fastest valid record of each pair of blocks; a state's name is the record's place."""
    found: dict[str, dict[Blocks, State]] = {}
    for place, (measured, result) in enumerate(pairs):
        if result.error_no != 0 or not soundness.is_sound(measured.task, measured.config):
            continue
        takes, gives = blocks(measured.task.name, measured.config)
        state = State(takes=takes, gives=gives, seconds=float(np.mean(result.costs)), name=place)
        known = found.setdefault(workloads.key(measured.task), {})
        if (takes, gives) not in known or state.seconds < known[takes, gives].seconds:
            known[takes, gives] = state
    return {key: list(known.values()) for key, known in found.items()}


def of_network(
    network: Network, recorded: dict[str, list[State]], untuned: Callable[[str], Blocks]
) -> dict[Any, list[State]]:
    """For each group its records' states; of one without any the untuned build's, whose time is not known."""
    states = {}
    for group in _groups(network):
        found = [state for key in group for state in recorded.get(key, ())]
        states[group] = found or [_unknown(group, untuned)]
    return states


def _unknown(group: Sequence[str], untuned: Callable[[str], Blocks]) -> State:
    takes, gives = next((pair for key in group if any(pair := untuned(key))), (PLAIN, PLAIN))
    return State(takes=takes, gives=gives, seconds=0.0)


def _groups(network: Network) -> Iterable[tuple[str, ...]]:
    chosen = (each.group for each in network.operators if each.kind == graph_layout.Kind.CHOSEN)
    return dict.fromkeys(chosen)  # type: ignore[arg-type]
