"""Which of Ansor's records a network is built with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import auto_scheduler

from tuner.engines.protocol.messages import Json
from tuner.engines.relay import compiling
from tuner.engines.relay.ansor import records

_NOT_OF_THE_CPU = ("num-cores", "model")
"""Attributes of a target that change no instruction."""


def choose(params: Json, target: Any) -> compiling.Schedules:
    """To build with what ``best`` finds."""
    found = best(params, target)
    if not found:
        return compiling.Schedules(dispatch=lambda: compiling.dispatch([]))
    used: set[str] = set()
    return compiling.Schedules(
        dispatch=lambda: _dispatch(found, used),
        config={"relay.backend.use_auto_scheduler": True},
        lines=lambda: [record.line for key, record in found.items() if key in used],
    )


def best(params: Json, target: Any) -> dict[str, records.Record]:
    """The fastest valid line of each workload, of this target only: TVM's own lookup takes any CPU's."""
    found: dict[str, records.Record] = {}
    for record in records.read(params.get("records")):
        if record.seconds is None or not _same_target(record.target, target):
            continue
        known = found.get(record.workload_key)
        if known is None or known.seconds is None or record.seconds < known.seconds:
            found[record.workload_key] = record
    return found


@contextmanager
def _dispatch(best: Mapping[str, records.Record], used: set[str]) -> Iterator[None]:
    used.clear()
    with compiling.dispatch([]), _Tracking(best, used):
        yield


class _Tracking(auto_scheduler.ApplyHistoryBest):
    """Notes for which workloads a build took a schedule."""

    def __init__(self, best: Mapping[str, records.Record], used: set[str]) -> None:
        super().__init__([(record.measured, record.result) for record in best.values()])
        self._best, self._used = best, used

    def _query_inside(self, target: Any, workload_key: str, func_name: str) -> Any:
        state = super()._query_inside(target, workload_key, func_name)
        if state is not None and workload_key in self._best:
            self._used.add(workload_key)
        return state


def _same_target(text: str, target: Any) -> bool:
    try:
        return _machine(tvm.target.Target(text)) == _machine(target)
    except (tvm.TVMError, ValueError, TypeError):
        return False


def _machine(target: Any) -> dict[str, str]:
    attributes = {str(name): str(value) for name, value in target.attrs.items() if name not in _NOT_OF_THE_CPU}
    return {"kind": str(target.kind.name), **attributes}
