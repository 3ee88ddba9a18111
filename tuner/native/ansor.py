"""Ansor records: one JSON object per line, as ``tvm.auto_scheduler.RecordToFile`` writes it."""

from __future__ import annotations

from tuner.native import targets
from tuner.native.lines import NativeRecord, digest, expect, is_list, key, moment, outcome, parse

_VERSIONS = ("v0.6",)


def read(line: str) -> NativeRecord:
    """Parse a line. Raises Refused."""
    row = parse(line)
    expect(isinstance(row, dict) and {"i", "r", "v"} <= set(row), "not a line of Ansor")
    expect(row["v"] in _VERSIONS, f"its format is not Ansor's {_VERSIONS[0]}")
    expect(is_list(row["i"], 2) and is_list(row["r"], 4), "not a line of Ansor")
    task, state = row["i"]
    expect(isinstance(task, list) and len(task) >= 3, "its search task is not Ansor's")
    expect(is_list(state, 2) and _are_steps(state[1]), "its steps are not Ansor's")
    expect(isinstance(task[1], str), "it has no target")
    workload_key, steps = key(task[0]), state[1]
    costs, error_number, _, finished_at = row["r"]
    latencies, error = outcome(costs, error_number)
    text, threads = targets.read(task[1])
    return NativeRecord(
        workload_key=workload_key,
        target=text,
        threads=threads,
        schedule=line,
        schedule_digest=digest([workload_key, steps]),
        latencies=latencies,
        error=error,
        finished_at=moment(finished_at),
        tvm=None,
    )


def _are_steps(steps: object) -> bool:
    return isinstance(steps, list) and all(
        isinstance(step, list) and bool(step) and isinstance(step[0], str) for step in steps
    )
