"""Native MetaSchedule records as lines of text, and their workloads.

A line is ``[workload key, [trace, run_secs, target, args_info]]``, as ``JSONDatabase`` writes it, but with the
workload's structural hash instead of its index in the other file. A failed trial has a time of 1e10 seconds, as there.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import meta_schedule

from tuner.engines.protocol.serving import EngineFailure

FAILED_SECONDS = 1e10
_normalized = tvm.get_global_func("tvm.s_tir.meta_schedule.normalize_mod")
_record_as_json = tvm.get_global_func("s_tir.meta_schedule.TuningRecordAsJSON")


@dataclass(frozen=True, kw_only=True)
class Record:
    line: str
    workload_key: str
    body: Any
    """Second element of the line."""

    @property
    def seconds(self) -> float:
        """Mean over repeats; infinite for a failed trial."""
        costs = [float(cost) for cost in self.body[1] or ()]
        mean = sum(costs) / len(costs) if costs else math.inf
        return mean if mean < FAILED_SECONDS / 10 else math.inf


def load(path: str | None) -> list[Record]:
    """Return the records of a file, skipping lines that are not of this form."""
    if not path:
        return []
    with Path(path).open(encoding="utf-8") as file:
        return [record for line in file if (record := parse(line.strip()))]


def parse(line: str) -> Record | None:
    """Return the record of a line, or None if it is not one."""
    try:
        key, body = json.loads(line)
        trace, seconds, _, _ = body
        _restore_truth(trace[0])
    except (ValueError, TypeError, IndexError):
        return None
    if not isinstance(key, str) or not isinstance(trace, list) or not isinstance(seconds, list | None):
        return None
    return Record(line=line, workload_key=key, body=body)


def parse_own(line: str) -> Record:
    """Return the record of a line that ``encode`` wrote. Raises ValueError for other lines."""
    record = parse(line)
    if record is None:
        raise ValueError(f"not a record: {line[:200]}")
    return record


def _restore_truth(instructions: list[Any]) -> None:
    """Restore booleans in annotations of a line that TVM wrote itself."""
    for name, inputs, attributes, _ in instructions:
        if name == "Annotate" and attributes == ["meta_schedule.layout_rewrite_preproc"] and inputs[1] == 1:
            inputs[1] = True


def by_workload(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the successful records of each workload, fastest first."""
    groups: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.seconds):
        if record.seconds < math.inf:
            groups.setdefault(record.workload_key, []).append(record)
    return groups


def best_lines(records: Iterable[Record]) -> list[str]:
    """Return the line that a build tries first, for each workload."""
    return [found[0].line for found in by_workload(records).values()]


def workload(function: Any) -> Any:
    """Return the ``Workload`` of a tensor function or of a module that contains one."""
    return meta_schedule.database.Workload(_normalized(function))


def workload_of(definition: Any) -> Any:
    """Return the ``Workload`` of a line of ``database_workload.json``."""
    return meta_schedule.database.Workload.from_json(definition)


def key_of(work: Any) -> str:
    return str(work.as_json()[0])


def definition(work: Any) -> list[str]:
    """Return the content of a line of ``database_workload.json``."""
    return [str(part) for part in work.as_json()]


def read_definition(path: str | None, workload_key: str) -> Any:
    """Return the ``Workload`` of a definition file. Raises EngineFailure ``unknown_workload``."""
    try:
        if not path:
            raise ValueError("the definition of the workload is needed: its key is a hash")
        work = workload_of(json.loads(Path(path).read_text(encoding="utf-8")))
        if key_of(work) != workload_key:
            raise ValueError(f"the definition has another key: {key_of(work)}")
    except Exception as error:
        # OSError, JSON errors, and whatever TVM raises for text that is not a module.
        message = f"cannot read the workload {workload_key[:100]}: {error}"
        raise EngineFailure("unknown_workload", message[:1500]) from error
    return work


def native(record: Record, work: Any) -> Any:
    """Return the ``TuningRecord``."""
    return meta_schedule.database.TuningRecord.from_json(record.body, work)


def replay(record: Record, work: Any) -> Any:
    """Return the ``Schedule`` of a record with its decisions. Raises whatever TVM raises for a trace that fails."""
    schedule = s_tir.Schedule(work.mod)
    native(record, work).trace.apply_to_schedule(schedule, remove_postproc=False)
    return schedule


def encode(work: Any, candidate: Any, target: Any, latencies: Iterable[float]) -> str:
    """Return the native line of a ``MeasureCandidate``; without latencies it is a failure."""
    seconds = [float(each) for each in latencies] or [FAILED_SECONDS]
    record = meta_schedule.database.TuningRecord(candidate.sch.trace, work, seconds, target, candidate.args_info)
    return json.dumps([key_of(work), _plain(_record_as_json(record))], separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Convert to plain JSON as ``JSONDatabase`` does, but keep booleans: replayed as 1, they result in another module.

    ``TuningRecord.as_json`` in Python fails on the layouts that a trace changes.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, tirx.IntImm | tirx.FloatImm):
        return value.value
    if isinstance(value, tvm_ffi.Array):
        return [_plain(item) for item in value]
    if isinstance(value, tvm_ffi.Map):
        return {str(key): _plain(item) for key, item in value.items()}
    return str(tvm.ir.save_json(value))


def digest(line: str) -> str:
    """Return the sha256 of workload and trace, without target and measurement."""
    key, body = json.loads(line)
    return hashlib.sha256(json.dumps([key, body[0]], separators=(",", ":")).encode()).hexdigest()
