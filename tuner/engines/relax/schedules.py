"""Schedules for tensor functions that no record covers: what an untuned build runs.

TVM leaves such functions on a CPU as plain loops, some fifty times slower than need be, and on a GPU they cannot run
at all. On a GPU ``dlight`` schedules them; here is what this project does on a CPU.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from tuner.engines.relax import targets, tiling

_SCHEDULED = "tirx.is_scheduled"
_WORTH_THREADS = 1 << 15
"""Steps of the innermost loops below which waking threads costs more than they save."""


def apply(module: Any, target: Any) -> Any:
    """Schedule every function of ``module`` that is not scheduled yet."""
    with target:
        if targets.is_gpu(target):
            gpu = dlight.gpu
            rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
            return dlight.ApplyDefaultSchedule(*rules)(module)
        for variable, function in module.functions_items():
            if isinstance(function, tirx.PrimFunc) and not function.attrs.get(_SCHEDULED):
                module[variable] = _scheduled(function, target)
    return module


def default(module: Any, target: Any) -> Any | None:
    """The ``Schedule`` of a module with one function on a CPU, None if nothing fits it."""
    machine = tiling.Machine.of(target)
    for rule in (_softmax_like, _tiled, _plain):
        try:
            return rule(s_tir.Schedule(module), machine, target)
        except Exception as error:  # noqa: BLE001 - primitives raise ScheduleError, and others on unusual functions
            logging.getLogger(__name__).debug("%s does not fit: %s", rule.__name__, error)
    return None


def _scheduled(function: Any, target: Any) -> Any:
    schedule = default(tvm.IRModule({"main": function}), target)
    return schedule.mod["main"].with_attr(_SCHEDULED, True) if schedule else function


def _softmax_like(schedule: Any, machine: tiling.Machine, target: Any) -> Any:  # noqa: ARG001 - a rule
    if not _reduces_contiguous_axis(schedule):
        raise _Unfit("no reduction along the last axis")
    found = dlight.cpu.Reduction().apply(schedule.mod["main"], target, False)
    if found is None:
        raise _Unfit("not of the form of softmax")
    return found


def _tiled(schedule: Any, machine: tiling.Machine, target: Any) -> Any:  # noqa: ARG001 - a rule
    """Inline, tile every reduction for registers and vectors, vectorize what is left, and use the threads."""
    if _reduces_contiguous_axis(schedule):
        raise _Unfit("vectors would run across rows")
    _inline(schedule)
    placed: list[Any] = []
    for block in _blocks(schedule):
        if _is_reduction(schedule, block):
            placed += tiling.tile(schedule, block, machine, parallel=_is_worth_threads(schedule, block, machine))
    names = {schedule.get(block).name_hint for block in placed}
    for block in _blocks(schedule):
        if schedule.get(block).name_hint not in names and not _is_reduction(schedule, block):
            _stream(schedule, block, machine)
    return schedule


def _plain(schedule: Any, machine: tiling.Machine, target: Any) -> Any:  # noqa: ARG001 - a rule
    """Threads over the outermost loops, and LLVM for the rest."""
    for block in _blocks(schedule):
        _run_in_parallel(schedule, block, machine)
    return schedule


class _Unfit(Exception):
    """A rule is not made for a function."""


def _inline(schedule: Any) -> None:
    for block in _blocks(schedule):
        if _is_reduction(schedule, block) or not schedule.get_consumers(block):
            continue
        # A padded input would be checked for its borders in the innermost loop.
        if _branches(schedule, block) and any(_is_reduction(schedule, user) for user in schedule.get_consumers(block)):
            continue
        with contextlib.suppress(tvm.s_tir.ScheduleError):
            schedule.compute_inline(block)


def _stream(schedule: Any, block: Any, machine: tiling.Machine) -> None:
    """A block that only maps: vectors along its last loop."""
    loops = schedule.get_loops(block)
    if loops and not _branches(schedule, block):
        extent = int(schedule.get(loops[-1]).extent)
        lanes = tiling.vector_width(extent, machine.lanes)
        if lanes > 1:
            _, inner = schedule.split(loops[-1], [None, lanes])
            schedule.vectorize(inner)
    _run_in_parallel(schedule, block, machine)


def _run_in_parallel(schedule: Any, block: Any, machine: tiling.Machine) -> None:
    if not _is_worth_threads(schedule, block, machine):
        return
    spatial: list[Any] = []
    for loop in schedule.get_loops(block):
        # Vectorized and reduction loops stay inside.
        if schedule.get(loop).kind != tirx.ForKind.SERIAL or len(spatial) == _spatial_count(schedule, block):
            break
        spatial.append(loop)
    if spatial:
        schedule.parallel(schedule.fuse(*spatial))


def _spatial_count(schedule: Any, block: Any) -> int:
    count = 0
    for variable in schedule.get(block).iter_vars:
        if variable.iter_type != tirx.IterVar.DataPar:
            break
        count += 1
    return count


def _is_worth_threads(schedule: Any, block: Any, machine: tiling.Machine) -> bool:
    steps = 1
    for loop in schedule.get_loops(block):
        steps *= int(schedule.get(loop).extent)
    return machine.threads > 1 and steps >= _WORTH_THREADS


def _blocks(schedule: Any) -> list[Any]:
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def _is_reduction(schedule: Any, block: Any) -> bool:
    return any(variable.iter_type == tirx.IterVar.CommReduce for variable in schedule.get(block).iter_vars)


def _branches(schedule: Any, block: Any) -> bool:
    # TVM 0.27 has no visitor of tensor programs for Python.
    return "if_then_else" in schedule.get(block).body.script()


def _reduces_contiguous_axis(schedule: Any) -> bool:
    """Whether a reduction of one tensor alone runs along its last axis, as softmax and layer norm do."""
    for block in _blocks(schedule):
        statement = schedule.get(block)
        if not _is_reduction(schedule, block) or len(statement.reads) != 1:
            continue
        last = statement.reads[0].region[-1].min
        reduced = [each.var for each in statement.iter_vars if each.iter_type == tirx.IterVar.CommReduce]
        if any(last.same_as(variable) for variable in reduced):
            return True
    return False


def reduces(module: Any) -> bool:
    """Whether a module of one function reduces anything."""
    schedule = s_tir.Schedule(module)
    return any(_is_reduction(schedule, block) for block in _blocks(schedule))
