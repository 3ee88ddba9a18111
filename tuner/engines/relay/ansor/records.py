"""Ansor's native record lines, and the choice of those to build a network with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import auto_scheduler
from tvm.auto_scheduler import measure_record
from tvm.auto_scheduler.measure import MeasureErrorNo

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import compiling
from tuner.engines.relay.ansor import workloads

_ERROR_NUMBERS = {
    "invalid_schedule": MeasureErrorNo.INSTANTIATION_ERROR,
    "build_error": MeasureErrorNo.COMPILE_HOST,
    "build_timeout": MeasureErrorNo.BUILD_TIMEOUT,
    "run_error": MeasureErrorNo.RUNTIME_DEVICE,
    "run_timeout": MeasureErrorNo.RUN_TIMEOUT,
}
_FAILED_SECONDS = 1e10
"""Cost that TVM's own runner writes for a failure."""


@dataclass(frozen=True, kw_only=True)
class Record:
    line: str
    workload_key: str
    target: str
    digest: str
    measured: Any
    """``MeasureInput`` whose state has no stages."""
    result: Any
    """``MeasureResult``."""

    @property
    def seconds(self) -> float | None:
        """Mean latency; None for a failure."""
        costs = [float(cost.value) for cost in self.result.costs]
        return sum(costs) / len(costs) if int(self.result.error_no) == 0 and costs else None


def read(path: str | None) -> Iterator[Record]:
    """Yield the records of a file, skipping lines that are not Ansor's, as TVM's reader does."""
    if path is None:
        return
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            record = parse(line.strip())
            if record is not None:
                yield record


def parse(line: str) -> Record | None:
    try:
        (key, target, *_), (_, steps) = json.loads(line)["i"]
        measured, result = measure_record.load_record_from_string(line)
    except Exception:  # noqa: BLE001 - TVM's parser raises TVMError, ours ValueError, KeyError or TypeError
        return None
    digest = workloads.digest(key, steps)
    return Record(line=line, workload_key=key, target=target, digest=digest, measured=measured, result=result)


def write(measured: Any, latencies: tuple[float, ...], error: str | None, finished_at: float) -> tuple[Any, str]:
    """Return the ``MeasureResult`` and the record line of a measurement; the format cannot hold an error message."""
    number = _ERROR_NUMBERS.get(error, MeasureErrorNo.UNKNOWN_ERROR) if error else MeasureErrorNo.NO_ERROR
    costs = [_FAILED_SECONDS] if error else list(latencies)
    result = auto_scheduler.MeasureResult(costs, int(number), error or "", 0.0, int(finished_at))
    return result, str(measure_record.dump_record_to_string(measured, result)).strip()


_NOT_CPU_ATTRIBUTES = ("num-cores", "model")
"""Target attributes that do not affect the generated instructions."""


def choose(params: Json, target: Any) -> compiling.Schedules:
    """Return schedules that apply the records found by ``best``."""
    found = best(params, target)
    if not found:
        return compiling.Schedules(dispatch=lambda: compiling.dispatch([]))
    used: set[str] = set()
    return compiling.Schedules(
        dispatch=lambda: _dispatch(found, used),
        config={"relay.backend.use_auto_scheduler": True},
        lines=lambda: [record.line for key, record in found.items() if key in used],
    )


def best(params: Json, target: Any) -> dict[str, Record]:
    """Return the fastest valid record of each workload for this target; TVM's own lookup accepts any CPU's."""
    found: dict[str, Record] = {}
    for record in read(params.get("records")):
        if record.seconds is None or not same_target(record.target, target):
            continue
        known = found.get(record.workload_key)
        if known is None or known.seconds is None or record.seconds < known.seconds:
            found[record.workload_key] = record
    return found


@contextmanager
def _dispatch(best: Mapping[str, Record], used: set[str]) -> Iterator[None]:
    used.clear()
    with compiling.dispatch([]), _Tracking(best, used):
        yield


class _Tracking(auto_scheduler.ApplyHistoryBest):
    """Records which workloads a build found a schedule for."""

    def __init__(self, best: Mapping[str, Record], used: set[str]) -> None:
        super().__init__([(record.measured, record.result) for record in best.values()])
        self._best, self._used = best, used

    def _query_inside(self, target: Any, workload_key: str, func_name: str) -> Any:
        state = super()._query_inside(target, workload_key, func_name)
        if state is not None and workload_key in self._best:
            self._used.add(workload_key)
        return state


def same_target(text: str, target: Any) -> bool:
    """Whether a record's target has the same instructions, whatever the number of cores."""
    try:
        return _machine(tvm.target.Target(text)) == _machine(target)
    except (tvm.TVMError, ValueError, TypeError):
        return False


def _machine(target: Any) -> dict[str, str]:
    attributes = {str(name): str(value) for name, value in target.attrs.items() if name not in _NOT_CPU_ATTRIBUTES}
    return {"kind": str(target.kind.name), **attributes}
