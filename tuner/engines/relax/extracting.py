"""Extraction of a model's tuning tasks and how often it runs each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tvm import s_tir
from tvm.s_tir import meta_schedule

from tuner.engines.protocol.messages import Json
from tuner.engines.relax import importing, records, schedules
from tuner.engines.relax.graph import lowering, products
from tuner.engines.runtime import progress

_ENDLESS = 1 << 40
"""Same as ``domain.tuning_tasks.ENDLESS``."""
_SILENT = {"workload", "fused", "transpose", "reshape", "tir", "expand", "dims", "cast"}
"""Parts of function names that are left out of descriptions."""


def extract(imported: importing.Imported, build: lowering.Lowering, out_dir: str) -> list[Json]:
    """Return the tasks, most work first, as ``domain.tuning_tasks.ExtractedTask``.

    Functions without a reduction (such as a sum or a maximum) are left out: they stream through memory, and no schedule
    found for them beats the default one by more than the noise.
    """
    module = lowering.lower(imported, build)
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    tasks: dict[str, Json] = {}
    extracted = meta_schedule.relax_integration.extract_tasks(module, build.target)
    progress.begin("extract", len(extracted))
    for found in extracted:
        progress.advance()
        work = records.workload(found.dispatched[0])
        if schedules.reduces(work.mod):
            _add(tasks, work, found, folder)
    ordered = sorted(tasks.values(), key=lambda task: -task["flop"] * task["weight"])
    return [{"position": position, **task} for position, task in enumerate(ordered)]


def _add(tasks: dict[str, Json], work: Any, found: Any, folder: Path) -> None:
    key = records.key_of(work)
    if key in tasks:
        tasks[key]["weight"] += int(found.weight)
        return
    definition = folder / f"{key}.json"
    definition.write_text(json.dumps(records.definition(work)))
    name = re.sub(r"\d+(?=_|$)", "", str(found.task_name))
    tasks[key] = {
        "name": name,
        "workload_key": key,
        "description": f"{_title(name)} {_shapes(work.mod)}",
        "weight": int(found.weight),
        "flop": float(s_tir.analysis.estimate_tir_flops(products.spelled_out(work.mod))),
        "space_size": _ENDLESS,
        "definition": definition.name,
    }


def _title(name: str) -> str:
    parts = [part for part in name.split("_") if part not in _SILENT]
    return "+".join(parts) or name


def _shapes(module: Any) -> str:
    """Return the shapes of the first two arguments and of the result: ``1×8×8×8 ∗ 1×1×8×16 → 1×8×8×16``."""
    shapes = [
        "×".join(str(size) for size in info.as_json()[2]) or "1"
        for info in meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"])
    ]
    return f"{' ∗ '.join(shapes[:-1][:2])} → {shapes[-1]}"
