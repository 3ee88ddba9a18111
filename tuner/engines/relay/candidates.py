"""What builder and measuring processes do with one candidate schedule."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import tvm
from tvm import autotvm
from tvm.autotvm.task.space import InstantiationError
from tvm.contrib import cc

from tuner.engines.protocol import faults, passes
from tuner.engines.relay import calibrating, compiling, linking, plugins, speedups, targets, workloads
from tuner.engines.relay.ansor import workloads as ansor_workloads
from tuner.engines.relay.templates import installing

Shapes = list[tuple[tuple[int, ...], str]]

_MOST_POOL_BYTES = 512 << 20


def set_up() -> None:
    speedups.install()
    installing.install()
    # Their templates are among those to be built.
    plugins.install()
    # Templates then take packed tensors as they are, as inside a network, instead of packing them themselves.
    autotvm.GLOBAL_SCOPE.in_tuning = True


def build(workload_key: str, target: str, threads: int, index: int, path: str) -> tuple[str | None, Any]:
    """Build candidate ``index`` of a workload's search space into the shared library ``path``.

    Returns ``(None, shapes and dtypes of its arguments)`` or ``(TrialError value, message)``.
    """
    task = _task(workload_key, target, threads)
    config = task.config_space.get(index)

    def instantiate() -> tuple[Any, Any]:
        with task.target:
            schedule, arguments = task.instantiate(config)
        if not config.valid():
            raise InstantiationError("; ".join(map(str, config.errors)))
        return schedule, arguments

    return build_schedule(instantiate, task.target, path)


def build_ansor(
    workload_key: str, definition: str, line: str, target: str, threads: int, path: str
) -> tuple[str | None, Any]:
    """Likewise for a schedule of Ansor's: a native line of a workload that its definition makes known."""

    def instantiate() -> tuple[Any, Any]:
        try:
            return ansor_workloads.replay(workload_key, definition, line, target, threads)
        except tvm.TVMError as error:
            raise InstantiationError(str(error)) from error

    return build_schedule(instantiate, targets.resolve(target, threads), path)


def build_schedule(instantiate: Callable[[], tuple[Any, Any]], target: Any, path: str) -> tuple[str | None, Any]:
    """Build a ``te.Schedule`` with its argument tensors; returns as ``build``."""
    failure: Exception | None = None
    # Checks of arguments' shapes and strides take a seventh of a build, and are none of what is measured.
    for context in compiling.pass_contexts(**{"tir.disable_assert": True}):
        try:
            with target, context:
                schedule, arguments = instantiate()
                library = tvm.build(schedule, arguments, target=target)
            library.export_library(path, fcompile=linker(target))
            return None, [(tuple(int(size) for size in each.shape), str(each.dtype)) for each in arguments]
        except InstantiationError as error:
            return "invalid_schedule", faults.with_trace(error)
        except Exception as error:  # noqa: BLE001 - a candidate may fail in any pass of TVM
            failure = error
            if not compiling.is_verifier_bug(error):
                break
    kind = "invalid_schedule" if "InstantiationError" in str(failure) else "build_error"
    return kind, faults.with_trace(failure or "")


@lru_cache(maxsize=64)
def _task(workload_key: str, target: str, threads: int) -> Any:
    return workloads.task(workload_key, targets.resolve(target, threads))


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
    shapes: Shapes,
    number: int,
    repeat: int,
    min_repeat_ms: int,
    flush: bool,
    best: float | None = None,
) -> list[float]:
    """Seconds per run of a built candidate on random data, one value per repeat, in two passes if ``best`` is known."""
    library = tvm.runtime.load_module(path)
    arrays = _POOL.arrays(shapes)

    def run() -> float:
        function = library.entry_func
        started = time.perf_counter()
        function(*arrays)
        return time.perf_counter() - started

    return passes.measure(
        run,
        lambda runs, times, ms: evaluate(library, tvm.cpu(0), arrays, runs, times, ms, flush),
        number=number,
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        best=best,
        fixed=flush,
    )


class _Pool:
    """Random data for arguments, made once: filling them would take as long as a short measurement."""

    def __init__(self) -> None:
        self._flat: dict[tuple[Any, ...], Any] = {}
        self._bytes = 0
        self._fill = tvm.get_global_func("tvm.contrib.random.random_fill")

    def arrays(self, shapes: Shapes) -> list[Any]:
        """One for each argument, none of which share memory; the last, which is written to, is no input of another."""
        if self._bytes > _MOST_POOL_BYTES:
            self._flat.clear()
            self._bytes = 0
        last = len(shapes) - 1
        return [self._array(place, place == last, *each) for place, each in enumerate(shapes)]

    def _array(self, place: int, is_last: bool, shape: tuple[int, ...], dtype: str) -> Any:
        key = (place, is_last, math.prod(shape), dtype)
        if key not in self._flat:
            self._flat[key] = tvm.nd.empty((math.prod(shape),), dtype, tvm.cpu(0))
            self._fill(self._flat[key])
            self._bytes += self._flat[key].numpy().nbytes
        return self._flat[key]._create_view(shape)


_POOL = _Pool()


def sample(
    library: Any,
    device: Any,
    fill: Any,
    shapes: Shapes,
    number: int,
    repeat: int,
    min_repeat_ms: int,
    flush: bool,
) -> list[float]:
    """Likewise, of a library that is loaded on ``device``, be it here or elsewhere.

    From three repeats on the smallest and the largest are dropped, as TVM's own runner does.
    """
    arrays = [tvm.nd.empty(shape, dtype, device) for shape, dtype in shapes]
    for array in arrays:
        fill(array)
    return evaluate(library, device, arrays, number, repeat, min_repeat_ms, flush)


def evaluate(
    library: Any, device: Any, arrays: Sequence[Any], number: int, repeat: int, min_repeat_ms: int, flush: bool
) -> list[float]:
    """Seconds per run on ``arrays``."""
    evaluator = library.time_evaluator(
        library.entry_name,
        device,
        number=number,
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        f_preproc="cache_flush_cpu_non_first_arg" if flush else "",
    )
    costs = sorted(float(cost) for cost in evaluator(*arrays).results)
    return costs[1:-1] if len(costs) > 2 else costs


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "build": build,
    "build_ansor": build_ansor,
    "calibrate": calibrating.calibrate,
    "measure": measure,
}
