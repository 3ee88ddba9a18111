"""Process that runs an operator with and without its schedule and compares them, for ``auditing``; it may crash."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import meta_schedule

from tuner.engines.protocol.messages import Json
from tuner.engines.relax import candidates, records, schedules, targets
from tuner.engines.runtime import auditing, faults

set_up = candidates.set_up


def compare(definition: Sequence[str], line: str, target: str, threads: int) -> Json:
    """Compare a native line's schedule with the plain loops: ``{max_abs, max_rel, wrong}``, see ``runtime.auditing``.

    On a GPU, which cannot run plain loops, the reference is the untuned build. Weights are rearranged inside both.
    """
    resolved = targets.resolve(target, threads)
    targets.load_intrinsics(resolved)
    work = records.workload_of(list(definition))
    plain = schedules.apply(work.mod, resolved) if targets.is_gpu(resolved) else work.mod
    try:
        scheduled = records.replay(records.parse_own(line), work).mod
    except Exception as error:  # noqa: BLE001 - a trace may fail in any primitive
        return {"failed": faults.text_of(error)}
    given = _random(work.mod["main"])
    outputs = []
    for module in (plain, scheduled):
        with tempfile.TemporaryDirectory(prefix="tunesmith-audit-") as folder:
            path = str(Path(folder) / "operator.so")
            failure = candidates.compile_module(module, resolved, path)
            if failure:
                return {"failed": faults.text_of(failure[1])}
            outputs.append(_run(path, given, tvm.cuda(0) if targets.is_gpu(resolved) else tvm.cpu(0)))
    return auditing.worst([auditing.compare(wanted, found) for wanted, found in zip(*outputs, strict=True)])


def _random(function: Any) -> list[Any]:
    """Return arrays for all arguments, including results: elements that are not written stay random and thus differ."""
    generator = np.random.default_rng(0)
    specs = [info.as_json() for info in meta_schedule.arg_info.ArgInfo.from_prim_func(function)]
    return [auditing.fill(generator, tuple(int(size) for size in shape), str(dtype)) for _, dtype, shape in specs]


def _run(path: str, given: Sequence[Any], device: Any) -> list[Any]:
    """Return all arguments after a run: results differ if the builds do, inputs never do."""
    library = tvm.runtime.load_module(path)
    arguments = [tvm.runtime.tensor(array, device) for array in given]
    library["main"](*arguments)
    return [argument.numpy() for argument in arguments]


FUNCTIONS: dict[str, Callable[..., Any]] = {"compare": compare}
