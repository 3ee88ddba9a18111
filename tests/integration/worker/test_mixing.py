"""Builds of AutoTVM with Ansor's schedules for the operators that no template computes, with scripted engines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from domain.profiles import Peak
from domain.stage_results import PlanResult, TuneResult
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO
from tuner.search import racing
from worker.pipeline import profiling

MIXED = "autotvm, mixed with ansor"
SOFTMAX = '["ansor:softmax"]'


def layers(chosen: Mapping[str, int], *, softmax: float = 2.5e-4) -> list[dict[str, Any]]:
    image, row = [1, 4, 8, 8], [1, 4, 64]
    conv = {"inputs": [[1, 3, 8, 8]], "weights": [[4, 3, 3, 3]], "outputs": [image]}
    return [
        {**conv, "name": "fused_conv2d", "seconds": 5e-4},
        {
            "name": "fused_nn_softmax_1", "inputs": [row], "weights": [], "outputs": [row],
            "seconds": 1e-4 if SOFTMAX in chosen else softmax,
        },
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def _script(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "IMPRESSION_TRIALS", 8)
    # The budget reaches for several builds.
    monkeypatch.setattr(racing, "SAVED_SECONDS", -1e6)
    monkeypatch.setattr(profiling.peaks, "measure", lambda _: Peak(flops=1e12))
    bench.script.hellos = {"relay": {**HELLO, "tuners": ["ansor", "autotvm"]}, "onnx": HELLO, "library": HELLO}
    bench.script.standalone = True
    bench.script.space_size = 10
    bench.script.beside = ("softmax",)
    bench.script.descriptions = {"conv": "conv2d 1×3×8×8 ∗ 4×3×3×3", "softmax": "softmax 1×4×64 → 1×4×64"}
    bench.script.layers = layers
    bench.script.run_seconds = {
        "reference": 3e-3, "untuned": 2e-3, "tuned": 1e-3, "tuned-autotvm-mixed-with-ansor": 0.5e-3,
    }  # fmt: skip


@pytest.fixture
def asked(bench: Bench) -> list[tuple[str, Counter[str]]]:
    """The builds, and the extractions beside one, with the numbers of records that they were given, by workload."""
    found: list[tuple[str, Counter[str]]] = []

    def look(method: str, params: dict[str, Any]) -> None:
        path = params.get("beside") or (params.get("records") if method == "compile" else None)
        if path:
            keys = Counter(json.loads(line)["key"] for line in Path(path).read_text().splitlines())
            found.append((method if method == "extract" else Path(params["out_dir"]).name, keys))

    bench.script.refuse = look
    return found


def test_operators_without_templates_are_searched_once_autotvm_is_done(
    bench: Bench, asked: list[tuple[str, Counter[str]]]
) -> None:
    job_id = bench.run(trials=100)
    found = bench.report(job_id)
    assert (found.portfolio[0].name, found.portfolio[0].verdict) == (MIXED, "published")
    assert found.portfolio[0].records == 3
    assert 8 <= found.portfolio[0].trials <= 10
    assert {"autotvm", "ansor"} <= {each.name for each in found.portfolio}
    assert any(line.startswith(f"{MIXED}: 10 trials") for line in found.choice)
    # The operators are those of a build with all records of AutoTVM.
    assert asked[0] == ("extract", Counter({'["conv"]': 10, '["dense"]': 10}))
    builds = dict(asked[1:])
    assert set(builds["partial-tuned-autotvm-mixed-with-ansor"]) == {'["conv"]', '["dense"]', SOFTMAX}
    assert set(builds["partial-tuned-autotvm"]) == {'["conv"]', '["dense"]'}
    # What completes another strategy's build does not lead.
    assert bench.result(job_id, TuneResult).tuner == "autotvm"


def test_the_next_job_builds_with_the_records_of_both_and_searches_nothing(bench: Bench) -> None:
    bench.run(trials=100)
    paid = len(bench.script.measured)
    second = bench.run(trials=100)
    assert len(bench.script.measured) == paid
    assert bench.report(second).portfolio[0].name == MIXED
    assert bench.report(second).portfolio[0].records == 3


def test_a_default_schedule_that_is_faster_in_the_network_comes_back(bench: Bench) -> None:
    def slow_in_place(chosen: Mapping[str, int]) -> list[dict[str, Any]]:
        conv, softmax = layers(chosen)
        return [conv, {**softmax, "seconds": 3e-4} if SOFTMAX in chosen else softmax]

    bench.script.layers = slow_in_place
    folder = "tuned-autotvm-mixed-with-ansor-in-the-network"
    bench.script.run_seconds = {**bench.script.run_seconds, folder: 0.4e-3}
    found = bench.report(bench.run(trials=100))
    assert (found.portfolio[0].name, found.portfolio[0].records) == (f"{MIXED}, in the network", 2)


@pytest.mark.parametrize("trial", [12, 23, 30])
def test_a_lost_worker_costs_no_trial(bench: Bench, trial: int) -> None:
    bench.kill_at(trial)
    job_id = bench.job(trials=100)
    bench.lose_worker(job_id)
    bench.runtime().run_job(job_id)
    assert len(set(bench.script.measured)) == len(bench.script.measured)
    assert bench.report(job_id).portfolio[0].name == MIXED


def test_schedules_slower_than_the_default_are_not_built(bench: Bench) -> None:
    bench.script.speed = {"ansor": 20.0}
    found = bench.report(bench.run(trials=100))
    assert MIXED not in {each.name for each in found.portfolio}


def test_a_small_share_is_not_searched(bench: Bench) -> None:
    bench.script.layers = lambda chosen: layers(chosen, softmax=2e-5)
    job_id = bench.run(trials=100)
    assert MIXED not in {each.name for each in bench.result(job_id, PlanResult).reserves}
    assert not any(params.get("beside") for params in bench.script.asked("extract"))


def test_mixing_can_be_switched_off(bench: Bench) -> None:
    bench.options = {"search_without": "mixing"}
    found = bench.report(bench.run(trials=100))
    assert MIXED not in {each.name for each in found.portfolio}
    assert not any(params.get("beside") for params in bench.script.asked("extract"))


def test_wrong_records_of_the_second_tuner_are_left_out(bench: Bench) -> None:
    bench.script.poisoned = frozenset({(SOFTMAX, index) for index in range(10)})
    found = {each.name: each for each in bench.report(bench.run(trials=100)).portfolio}
    # The audit finds the records of Ansor, and the build is made again without them.
    assert (found[MIXED].verified, found[MIXED].records) == (True, 2)
