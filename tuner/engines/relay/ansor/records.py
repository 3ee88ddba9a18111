"""Ansor's native lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm import auto_scheduler
from tvm.auto_scheduler import measure_record
from tvm.auto_scheduler.measure import MeasureErrorNo

from tuner.engines.relay.ansor import workloads

_ERROR_NUMBERS = {
    "invalid_schedule": MeasureErrorNo.INSTANTIATION_ERROR,
    "build_error": MeasureErrorNo.COMPILE_HOST,
    "build_timeout": MeasureErrorNo.BUILD_TIMEOUT,
    "run_error": MeasureErrorNo.RUNTIME_DEVICE,
    "run_timeout": MeasureErrorNo.RUN_TIMEOUT,
}
_FAILED_SECONDS = 1e10
"""What TVM's own runner writes as the cost of a failure."""


@dataclass(frozen=True, kw_only=True)
class Record:
    line: str
    workload_key: str
    target: str
    digest: str
    measured: Any
    """``MeasureInput``, its state without stages"""
    result: Any
    """``MeasureResult``"""

    @property
    def seconds(self) -> float | None:
        """Mean latency; None for a failure."""
        costs = [float(cost.value) for cost in self.result.costs]
        return sum(costs) / len(costs) if int(self.result.error_no) == 0 and costs else None


def read(path: str | None) -> Iterator[Record]:
    """The lines of a file; what is no Ansor line is passed over, as TVM's reader does."""
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
    """The ``MeasureResult`` and the line of a measurement; the format has no place for the message of an error."""
    number = _ERROR_NUMBERS.get(error, MeasureErrorNo.UNKNOWN_ERROR) if error else MeasureErrorNo.NO_ERROR
    costs = [_FAILED_SECONDS] if error else list(latencies)
    result = auto_scheduler.MeasureResult(costs, int(number), error or "", 0.0, int(finished_at))
    return result, str(measure_record.dump_record_to_string(measured, result)).strip()
