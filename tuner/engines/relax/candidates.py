"""What builder and measuring processes do with one candidate schedule."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
from tvm import s_tir
from tvm.support import cc

from tuner.engines.protocol import faults, passes
from tuner.engines.relax import calibrating, compiling, cuda, environment, linking, records, targets

Shapes = list[tuple[tuple[int, ...], str]]

FILL = "tvm.contrib.random.random_fill_for_measure"
_MOST_POOL_BYTES = 512 << 20


def set_up() -> None:
    environment.leave_out_intrinsics()


def build(definition: str, line: str, target: str, threads: int, path: str) -> tuple[str | None, Any]:
    """Build the candidate of a record line into the shared library ``path``.

    Returns ``(None, (device, shapes and dtypes of its arguments))`` or ``(TrialError value, message)``. Weights come
    in the layout that the schedule asks for, as they will inside a network.
    """
    resolved = targets.resolve(target, threads)
    targets.load_intrinsics(resolved)
    if targets.is_gpu(resolved):
        cuda.require_compiler()
    record = records.parse(line)
    if record is None:
        return "invalid_schedule", "not a record"
    try:
        module = records.replay(record, _workload(definition)).mod
    except Exception as error:  # noqa: BLE001 - a trace may fail in any primitive
        return "invalid_schedule", faults.with_trace(error)
    module = s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    failure = compile_module(module, resolved, path)
    if failure:
        return failure
    shapes = [(tuple(int(size) for size in shape), str(dtype)) for _, dtype, shape in record.body[3]]
    return None, ("cuda" if targets.is_gpu(resolved) else "cpu", shapes)


@lru_cache(maxsize=64)
def _workload(definition: str) -> Any:
    return records.workload_of(json.loads(Path(definition).read_text(encoding="utf-8")))


def compile_module(module: Any, target: Any, path: str) -> tuple[str, str] | None:
    """Build a module of one function into the shared library ``path``; None, or ``(TrialError value, message)``."""
    failure: Exception | None = None
    # Checks of arguments' shapes and strides take a seventh of a build, and are none of what is measured.
    for context in compiling.pass_contexts(**{"tirx.disable_assert": True}):
        try:
            with target, context:
                tvm.tirx.build(module, target=target).export_library(path, fcompile=linker(target))
            return None
        except Exception as error:  # noqa: BLE001 - a candidate may fail in any pass of TVM
            failure = error
            if not compiling.is_verifier_bug(error):
                break
    return "build_error", faults.with_trace(failure or "")


def linker(target: Any) -> Callable[..., None]:
    """``fcompile`` of ``tvm.runtime.Module.export_library`` for a ``tvm.target.Target``."""
    tools = linking.tools(target)
    return tools.link if tools.triple else _link


def _link(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
    """Call the linker itself: the compiler driver around it takes longer than the link (20 to 40 ms a candidate)."""
    try:
        subprocess.run(["ld", "-shared", "-o", output, *objects], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        cc.create_shared(output, objects, options)


def measure(
    path: str,
    built: tuple[str, Shapes],
    number: int,
    repeat: int,
    min_repeat_ms: int,
    flush: bool,
    best: float | None = None,
) -> list[float]:
    """Seconds per run of a built candidate on random data, one value per repeat, in two passes if ``best`` is known."""
    kind, shapes = built
    device = tvm.cuda(0) if kind == "cuda" else tvm.cpu(0)
    library = tvm.runtime.load_module(path)
    arrays = _POOL.arrays(shapes, device)

    def run() -> float:
        function = library[_entry(library)]
        started = time.perf_counter()
        function(*arrays)
        device.sync()
        return time.perf_counter() - started

    return passes.measure(
        run,
        lambda runs, times, ms: evaluate(library, device, arrays, runs, times, ms, flush and kind == "cpu"),
        number=number,
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        best=best,
        fixed=flush and kind == "cpu",
    )


class _Pool:
    """Random data for arguments, made once: filling them would take as long as a short measurement."""

    def __init__(self) -> None:
        self._flat: dict[tuple[Any, ...], Any] = {}
        self._bytes = 0

    def arrays(self, shapes: Shapes, device: Any) -> list[Any]:
        """One for each argument, none of which share memory; the last, which is written to, is no input of another."""
        if self._bytes > _MOST_POOL_BYTES:
            self._flat.clear()
            self._bytes = 0
        last = len(shapes) - 1
        return [self._array(place, place == last, *each, device) for place, each in enumerate(shapes)]

    def _array(self, place: int, is_last: bool, shape: tuple[int, ...], dtype: str, device: Any) -> Any:
        key = (place, is_last, math.prod(shape), dtype, str(device))
        if key not in self._flat:
            self._flat[key] = tvm.runtime.empty((math.prod(shape),), dtype, device)
            tvm.get_global_func(FILL)(self._flat[key])
            self._bytes += self._flat[key].numpy().nbytes
        return self._flat[key]._create_view(shape)


_POOL = _Pool()


def sample(
    library: Any,
    device: Any,
    fill: Any,
    built: tuple[str, Shapes],
    number: int,
    repeat: int,
    min_repeat_ms: int,
    flush: bool,
) -> list[float]:
    """Likewise, of a library that is loaded on ``device``, be it here or elsewhere.

    From three repeats on the smallest and the largest are dropped, as TVM's AutoTVM runner does.
    """
    kind, shapes = built
    arrays = [tvm.runtime.empty(shape, dtype, device) for shape, dtype in shapes]
    for array in arrays:
        fill(array)
    return evaluate(library, device, arrays, number, repeat, min_repeat_ms, flush and kind == "cpu")


def evaluate(
    library: Any, device: Any, arrays: Sequence[Any], number: int, repeat: int, min_repeat_ms: int, flush: bool
) -> list[float]:
    """Seconds per run on ``arrays``."""
    evaluator = library.time_evaluator(
        _entry(library),
        device,
        number=number,
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        f_preproc="cache_flush_cpu_non_first_arg" if flush else "",
    )
    costs = sorted(float(cost) for cost in evaluator(*arrays).results)
    return costs[1:-1] if len(costs) > 2 else costs


def _entry(library: Any) -> str:
    return str(library.entry_name) if hasattr(library, "entry_name") else "main"


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "build": build,
    "calibrate": calibrating.calibrate,
    "measure": measure,
}
