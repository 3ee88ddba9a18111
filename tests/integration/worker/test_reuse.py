"""No trial is paid for twice: by the same job again, by a model that shares layers, by jobs at the same time."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.jobs import JobState, MeasureOptions, RpcOptions, RunnerKind, Tuner, TunerOptions
from domain.stage_results import PlanResult
from tests.support.waiting import until
from tests.support.worker.fixtures import Bench, Killed
from tests.support.worker.scripted import refusing
from tuner.search.allocation import Allocator

BOARD = RpcOptions(tracker="board:9190", key="rasp4b")


def run(bench: Bench, **request: Any) -> str:
    return bench.succeed(**{"tuner": Tuner.AUTOTVM, **request})


def other_model(bench: Bench, **request: Any) -> str:
    return bench.job(content=b"another model", **{"tuner": Tuner.AUTOTVM, **request})


@pytest.mark.parametrize("budget", [{"trials": 32}, {"trials": None, "seconds": 0.3}, {"trials": 24, "seconds": 50.0}])
def test_the_same_job_again_needs_no_trials_and_no_extraction(bench: Bench, budget: dict[str, Any]) -> None:
    bench.script.seconds_per_trial = 0.01
    first = run(bench, **budget)
    bench.script.requests.clear()
    second = run(bench, **budget)
    assert bench.records(first)
    assert bench.records(second) == []
    assert not bench.script.asked("extract")
    assert not bench.script.asked("tune")
    plan = bench.result(second, PlanResult)
    assert (plan.tasks, plan.covered, plan.trials_planned) == (2, 2, 0)
    assert plan.trials_on_record == len(bench.records(first))


def test_more_budget_pays_the_difference(bench: Bench) -> None:
    run(bench, trials=16)
    second = run(bench, trials=48)
    assert len(bench.records(second)) == 32
    assert len(set(bench.script.measured)) == len(bench.script.measured) == 48


def test_a_model_that_shares_layers_pays_for_the_others(bench: Bench) -> None:
    run(bench, trials=None, seconds=0.4)
    bench.script.seconds_per_trial = 0.01
    bench.script.tasks = ("conv", "head")
    second = other_model(bench, trials=None, seconds=0.4)
    bench.runtime().run_job(second)
    assert {record.key.workload_key for record in bench.records(second)} == {'["head"]'}
    assert bench.result(second, PlanResult).budget_seconds == pytest.approx(0.2)
    assert bench.script.asked("tune")[-1]["seconds"] <= 0.2


def test_efforts_tell_what_ended_the_search(bench: Bench) -> None:
    job_id = run(bench, trials=16, seconds=1000.0)
    conv, dense = _efforts(bench, job_id)
    assert (conv.trials, dense.trials) == (8, 8)
    assert conv.seconds < 100
    bench.script.tasks = ("conv", "tiny")
    bench.script.space_size = 8
    job_id = run(bench, trials=16, seconds=1000.0, tuner_options=TunerOptions(keep_layout=False))
    assert _efforts(bench, job_id)[1].trials == math.inf


def _efforts(bench: Bench, job_id: str) -> list[Any]:
    return [task.effort for task in bench.tasks(job_id)]


def test_what_a_search_gave_up_is_not_begun_again_by_the_same_budget(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Allocator, "_is_beaten", lambda _, task: "dense" in task.extracted.workload_key and task.done > 15
    )
    bench.script.space_size = 40
    first = run(bench, trials=None, seconds=600.0)
    assert Counter(record.key.workload_key for record in bench.records(first)) == {'["conv"]': 40, '["dense"]': 16}
    second = run(bench, trials=None, seconds=600.0)
    assert bench.records(second) == []
    third = run(bench, trials=None, seconds=1200.0)
    assert bench.records(third)


def test_what_killed_its_engines_is_tried_again_when_the_same_budget_comes_again(bench: Bench) -> None:
    bench.script.refuse = refusing("tune", errors.EngineCrashed("out of memory"), workload_key="dense")
    bench.script.space_size = 40
    first = run(bench, trials=None, seconds=600.0)
    assert {record.key.workload_key for record in bench.records(first)} == {'["conv"]'}
    bench.script.refuse = lambda _method, _params: None
    second = run(bench, trials=None, seconds=600.0)
    assert {record.key.workload_key for record in bench.records(second)} == {'["dense"]'}


@pytest.mark.parametrize("budget", [{"trials": 32}, {"trials": None, "seconds": 2.0}])
def test_what_killed_its_engines_is_not_credited_with_its_share(bench: Bench, budget: dict[str, Any]) -> None:
    bench.script.seconds_per_trial = 0.01
    bench.script.crashing = frozenset({'["dense"]'})
    first = run(bench, **budget)
    # Each of its two engines died after one.
    assert _efforts(bench, first)[1].trials == 2
    bench.script.crashing = frozenset()
    second = run(bench, **budget)
    assert '["dense"]' in {record.key.workload_key for record in bench.records(second)}


@pytest.mark.parametrize("budget", [{"trials": 64}, {"trials": None, "seconds": 600.0}])
def test_who_does_what_a_failure_hints_at_is_served(bench: Bench, budget: dict[str, Any]) -> None:
    """Every trial of one job times out; the next one gives them longer."""

    def time_out(method: str, params: dict[str, Any]) -> None:
        if method == "tune":
            short = params["measure"]["timeout"] < 1
            bench.script.failing = frozenset({'["conv"]', '["dense"]'} if short else ())

    bench.script.refuse, bench.script.space_size = time_out, 80
    first = bench.job(tuner=Tuner.AUTOTVM, measure=MeasureOptions(timeout=0.5), **budget)
    bench.runtime().run_job(first)
    assert (failure := bench.get(first).failure)
    assert failure.code == "no_valid_trial"
    second = run(bench, measure=MeasureOptions(timeout=60.0), **budget)
    assert {record.key.workload_key for record in bench.records(second)} == {'["conv"]', '["dense"]'}
    assert bench.records(run(bench, measure=MeasureOptions(timeout=60.0), **budget)) == []


def test_a_task_without_a_valid_trial_gets_its_share_of_a_larger_budget(bench: Bench) -> None:
    bench.script.failing = frozenset({'["dense"]'})
    first = run(bench, trials=128)
    assert _efforts(bench, first)[1].trials == 64
    assert bench.records(run(bench, trials=128)) == []
    bench.script.failing = frozenset()
    third = run(bench, trials=448)
    assert Counter(record.key.workload_key for record in bench.records(third))['["dense"]'] == 224 - 64


def test_stale_records_are_counted_and_passed_over(bench: Bench) -> None:
    run(bench, trials=16, threads=1)
    second = run(bench, trials=16, threads=2)
    assert len(bench.records(second)) == 16
    assert sum(bench.result(second, PlanResult).passed_over.values()) == 16


def test_tasks_that_another_job_searches_are_left_to_it(bench: Bench) -> None:
    """Two workers at once, with models that share one of two layers; devices behind a tracker, which no lock guards."""
    board = {"target": "llvm -mcpu=znver3", "threads": 2, "runner": RunnerKind.RPC, "rpc": BOARD}
    waits = threading.Event()
    bench.script.on_trial = lambda count: waits.wait(60) and None if count == 4 else None
    first = bench.job(trials=32, tuner=Tuner.AUTOTVM, **board)
    worker = threading.Thread(target=bench.runtime().run_job, args=[first])
    worker.start()
    until(lambda: len(bench.script.measured) >= 4)
    bench.script.tasks = ("conv", "head")
    second = other_model(bench, trials=32, **board)
    other = threading.Thread(target=bench.runtime().run_job, args=[second])
    other.start()
    until(lambda: any("waiting for job" in note for note in bench.notes(second)))
    waits.set()
    worker.join(60)
    other.join(60)
    for job_id in (first, second):
        assert bench.get(job_id).state is JobState.SUCCEEDED
    assert len(set(bench.script.measured)) == len(bench.script.measured)
    assert {record.key.workload_key for record in bench.records(second)} == {'["head"]'}
    (note,) = [note for note in bench.notes(second) if "waiting for job" in note]
    assert first in note
    assert bench.result(second, PlanResult).elsewhere == {'["conv"]': first}


def test_the_tasks_of_a_job_that_died_are_taken_over(bench: Bench) -> None:
    bench.kill_at(4)
    first = bench.job(trials=32, tuner=Tuner.AUTOTVM)
    with pytest.raises(Killed):
        bench.runtime().run_job(first)
    second = other_model(bench, trials=32)
    worker = threading.Thread(target=bench.runtime().run_job, args=[second])
    worker.start()
    until(lambda: any("waiting for job" in note for note in bench.notes(second)))
    assert bench.records(second) == []
    bench.bury(first)
    worker.join(60)
    assert bench.get(second).state is JobState.SUCCEEDED
    tried = Counter(record.key.workload_key for record in bench.records(second))
    assert set(tried) == {'["conv"]', '["dense"]'}


def test_waiting_for_another_job_ends_with_a_cancel(bench: Bench) -> None:
    bench.kill_at(1)
    first = bench.job(trials=32, tuner=Tuner.AUTOTVM)
    with pytest.raises(Killed):
        bench.runtime().run_job(first)
    second = other_model(bench, trials=32)
    worker = threading.Thread(target=bench.runtime().run_job, args=[second])
    worker.start()
    until(lambda: any("waiting for job" in note for note in bench.notes(second)))
    bench.cancel(second)
    worker.join(60)
    assert bench.get(second).state is JobState.CANCELED


def test_cost_models_learn_from_other_workloads(bench: Bench) -> None:
    run(bench, trials=16)
    bench.script.tasks = ("conv",)
    bench.script.requests.clear()
    seen: list[str] = []

    def refuse(method: str, params: dict[str, Any]) -> None:
        if method == "tune" and params["history"]:
            seen.append(Path(params["history"]).read_text())

    bench.script.refuse = refuse
    bench.script.renamed = {"conv": "conv-of-another-size"}
    second = other_model(bench, trials=16)
    bench.runtime().run_job(second)
    assert seen
    assert {json.loads(line)["key"] for line in seen[0].splitlines()} == {'["conv"]'}
    third = bench.job(content=b"third", trials=16, tuner=Tuner.AUTOTVM, tuner_options=TunerOptions(transfer=False))
    bench.script.renamed = {"conv": "conv-of-a-third-size"}
    seen.clear()
    bench.runtime().run_job(third)
    assert seen == []
