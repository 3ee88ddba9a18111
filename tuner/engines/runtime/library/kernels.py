"""The tensors of a library's kernels, for profiles: a file of the build that is no part of its bundle."""

from __future__ import annotations

import json
from pathlib import Path

from tuner.engines.protocol.messages import Json
from tuner.engines.runtime.library.plan import Call, Kind, Plan

FILE = "kernels.json"


def write(plan: Plan, folder: Path) -> None:
    """Write ``FILE``: for each call its ``name``, ``bytes``, and the shapes of ``inputs``, ``weights`` and ``outputs``.

    ``bytes`` is the size of all its tensors, each counted once. Raises NotStandalone as ``Plan.bytes_of``.
    """
    made: set[int] = set()
    (folder / FILE).write_text(json.dumps([_described(plan, call, made) for call in plan.calls]))


def read(folder: Path) -> list[Json]:
    """Return what ``write`` wrote; empty if there is no such file."""
    try:
        found: list[Json] = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return []
    return found


def _described(plan: Plan, call: Call, made: set[int]) -> Json:
    """``made`` are the scratch buffers that calls before have written; this call's are added."""
    described: Json = {"name": call.name, "inputs": [], "weights": [], "outputs": []}
    new: set[int] = set()
    for place in call.arguments:
        tensor = plan.tensors[place]
        if tensor.kind is Kind.CONSTANT:
            role = "weights"
        elif tensor.kind is Kind.SCRATCH and tensor.index not in made:
            # Every buffer is written before it is read.
            role = "outputs"
            new.add(tensor.index)
        else:
            role = "inputs"
        described[role].append(list(tensor.shape))
    made |= new
    return {**described, "bytes": sum(plan.bytes_of(plan.tensors[place]) for place in set(call.arguments))}
