"""A search starts where the untuned build spends its time."""

from __future__ import annotations

from typing import Any

import pytest

from domain import errors
from domain.jobs import JobState
from domain.stage_results import TuneResult
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO, refusing
from worker.leases import ShuttingDown

CONV, DENSE = '["conv"]', '["dense"]'
CONV_SECONDS, DENSE_SECONDS = 2e-4, 15e-4


@pytest.fixture(autouse=True)
def _libraries(bench: Bench) -> None:
    bench.script.hellos = {"relay": HELLO, "onnx": HELLO, "library": HELLO}
    bench.script.standalone = True
    bench.script.descriptions = {"conv": "conv2d 1×3×8×8 ∗ 4×3×3×3", "dense": "dense 1×256 ∗ 10×256"}
    bench.script.layers = lambda _: [
        layer("fused_conv2d", [1, 3, 8, 8], [4, 3, 3, 3], CONV_SECONDS),
        layer("fused_dense", [1, 256], [10, 256], DENSE_SECONDS),
    ]


def layer(name: str, data: list[int], weights: list[int], seconds: float) -> dict[str, Any]:
    return {"name": name, "inputs": [data], "weights": [weights], "outputs": [[1, 10]], "seconds": seconds}


def first_searched(bench: Bench) -> str:
    return str(bench.script.asked("tune")[0]["workload_key"])


def test_the_operator_that_takes_longest_is_searched_first(bench: Bench) -> None:
    bench.run()
    assert first_searched(bench) == DENSE


@pytest.mark.parametrize(("emptied", "times"), [(False, 1), (True, 2)])
def test_a_build_is_profiled_once_for_all_attempts(bench: Bench, emptied: bool, times: int) -> None:
    """But again if a power failure has emptied the file."""
    stops = [ShuttingDown()]

    def stop(_count: int) -> None:
        if stops:
            raise stops.pop()

    bench.script.on_trial = stop
    job_id = bench.run(trials=16)
    assert bench.get(job_id).state is JobState.QUEUED
    if emptied:
        (bench.work(job_id) / "untuned-relay-profile.json").write_bytes(b"")
    bench.finish(job_id)
    untuned = [asked for asked in bench.script.asked("profile") if asked.get("bundle", "").endswith("untuned-relay")]
    assert len(untuned) == times


def test_without_a_profile_the_search_begins_with_most_operations(bench: Bench) -> None:
    bench.script.refuse = refusing("profile", errors.EngineRequestFailed("run_failed", "no memory"))
    job = bench.succeed()
    assert bench.result(job, TuneResult).trials
    assert first_searched(bench) == CONV
    assert any(note.startswith("operators of the untuned build were not timed") for note in bench.notes(job))
