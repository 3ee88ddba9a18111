"""Functions of builder and measuring processes for one candidate schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import tvm
from tvm import autotvm, te
from tvm.autotvm.task.space import InstantiationError

from tuner.engines.relay import corrections, plugins, prefetching, templates, workloads
from tuner.engines.relay.ansor import workloads as ansor_workloads
from tuner.engines.relay.release import RELEASE
from tuner.engines.relay.targets import resolve
from tuner.engines.runtime import candidates, compiling, faults, targets


def set_up() -> None:
    corrections.install()
    templates.install()
    # Plugin templates may be among those to build.
    plugins.install()
    # Templates then accept packed tensors as they are, as inside a network, instead of packing them themselves.
    autotvm.GLOBAL_SCOPE.in_tuning = True


def build(workload_key: str, target: str, threads: int, index: int, path: str) -> tuple[str | None, Any]:
    """Build candidate ``index`` of a workload's search space into the shared library ``path``.

    Returns ``(None, (device, shapes and dtypes of its arguments))`` or ``(TrialError value, message)``.
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
    """Build an Ansor schedule, given as a native line and the definition of its workload; returns as ``build``."""

    def instantiate() -> tuple[Any, Any]:
        try:
            return ansor_workloads.replay(workload_key, definition, line, target, threads)
        except tvm.TVMError as error:
            raise InstantiationError(str(error)) from error

    return build_schedule(instantiate, resolve(target, threads), path)


def build_schedule(instantiate: Callable[[], tuple[Any, Any]], target: Any, path: str) -> tuple[str | None, Any]:
    """Build a ``te.Schedule`` with its argument tensors; returns as ``build``."""

    def make() -> Any:
        with target:
            schedule, arguments = instantiate()
            tvm.build(schedule, arguments, target=target).export_library(path, fcompile=CANDIDATES.linker(target))
        return arguments

    try:
        arguments = compiling.build(RELEASE, make, assertions=False, **prefetching.options(target))
    except Exception as error:  # noqa: BLE001 - a candidate may fail in any pass of TVM
        invalid = isinstance(error, InstantiationError) or "InstantiationError" in str(error)
        return "invalid_schedule" if invalid else "build_error", faults.with_trace(error)
    return None, ("cpu", [(tuple(int(size) for size in each.shape), str(each.dtype)) for each in arguments])


@lru_cache(maxsize=64)
def _task(workload_key: str, target: str, threads: int) -> Any:
    return workloads.task(workload_key, resolve(target, threads))


def _build_product(tensors: Sequence[Any], width: int) -> tuple[Any, str]:
    product = tensors[-1]
    schedule = te.create_schedule(product.op)
    (i, j), [k] = product.op.axis, product.op.reduce_axis
    outer, inner = schedule[product].split(j, factor=width)
    schedule[product].reorder(i, outer, k, inner)
    schedule[product].vectorize(inner)
    target = tvm.target.Target(f"llvm -mcpu={targets.native_cpu(tvm)}")
    return tvm.build(schedule, tensors, target=target, name="calibrate"), "calibrate"


CANDIDATES = candidates.Candidates(RELEASE, _build_product)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "build": build,
    "build_ansor": build_ansor,
    "calibrate": CANDIDATES.calibrate,
    "measure": CANDIDATES.measure,
}
