"""A stage's memory follows from the model; one that needs more fails, and the worker goes on."""

from __future__ import annotations

from typing import Any

import pytest

from domain import errors
from domain.jobs import JobState
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import refusing

GIB = 1024**3


def limits(bench: Bench) -> dict[str, int | None]:
    """The last limit of each method."""
    found = dict(bench.script.limited)
    bench.script.limited.clear()
    return found


def test_limits_follow_from_the_model_and_the_stage(bench: Bench) -> None:
    bench.script.memory_bytes = 1 * GIB
    bench.run(trials=4)
    small = limits(bench)
    bench.script.memory_bytes = 3 * GIB
    bench.run(trials=8)
    large = limits(bench)
    methods = {"check", "make_inputs", "run", "extract", "tune", "compile", "compare", "time"}
    assert methods <= small.keys()
    assert {"check", "tune", "compile", "time"} <= large.keys()
    assert all((large[method] or 0) - (small[method] or 0) == 2 * GIB for method in large)
    of = {method: each for method, each in small.items() if each is not None}
    assert of["time"] < of["compile"] == of["check"] == of["extract"] < of["tune"]


def test_a_model_of_unknown_needs_has_the_limit_of_the_settings(bench: Bench) -> None:
    bench.run(trials=4)
    assert set(limits(bench).values()) == {None}


@pytest.mark.parametrize("method", ["check", "run", "compile", "extract"])
@pytest.mark.parametrize(
    "error",
    [
        errors.EngineRequestFailed("out_of_memory", "MemoryError: unable to allocate 40 GiB"),
        errors.EngineCrashed("it was killed by SIGABRT", details={"log_tail": "std::bad_alloc\n"}),
    ],
)
def test_a_stage_that_needs_more_fails_once_and_the_worker_goes_on(
    bench: Bench, method: str, error: errors.EngineError
) -> None:
    bench.script.memory_bytes = 1 * GIB
    asked: list[str] = []

    def refuse(name: str, _: dict[str, Any]) -> None:
        if name == method:
            asked.append(name)
            raise error

    bench.script.refuse = refuse
    job_id = bench.run(trials=4)
    failure = bench.failure(job_id)
    assert failure.code == "engine_out_of_memory"
    assert "MiB that" in failure.message
    assert "Use smaller inputs" in (failure.hint or "")
    assert len(asked) == 1, "it would need as much again"
    bench.script.refuse = lambda _method, _params: None
    assert bench.get(bench.run(trials=4)).state is JobState.SUCCEEDED


def test_a_round_that_needs_more_costs_its_task_alone(bench: Bench) -> None:
    error = errors.EngineRequestFailed("out_of_memory", "MemoryError")
    bench.script.refuse = refusing("tune", error, workload_key="dense")
    job_id = bench.succeed(trials=8)
    assert {record.key.workload_key for record in bench.records(job_id)} == {'["conv"]'}
