"""Several tuners on one budget, with scripted engines."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from domain import errors
from domain.artifacts import Variant
from domain.jobs import JobState, Tuner
from domain.stage_results import PlanResult, Strategy, TuneResult
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import THREE, refusing
from tuner.search import racing
from worker.pipeline import planning

CRASH = errors.EngineCrashed("relay engine: it was killed by SIGSEGV")
REFUSAL = errors.EngineRequestFailed("bad_request", "no schedule is known for this operator")


@pytest.fixture(autouse=True)
def _race_soon(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "IMPRESSION_TRIALS", 8)
    monkeypatch.setattr(racing, "RIVAL_TRIALS", 1)
    bench.script.hellos = THREE
    bench.script.space_size = 40


def run(bench: Bench, **request: Any) -> str:
    return bench.run(**{"trials": 100, **request})


def spent(bench: Bench, job_id: str) -> Counter[str]:
    return Counter(record.tuner for record in bench.records(job_id))


@pytest.mark.parametrize("winner", [Tuner.AUTOTVM, Tuner.ANSOR, Tuner.METASCHEDULE])
def test_the_most_promising_tuner_gets_most_of_the_budget(bench: Bench, winner: Tuner) -> None:
    # Trials of equal numbers are three times as fast: nobody else can catch up.
    bench.script.speed = dict.fromkeys(set(Tuner) - {winner}, 3.0)
    job_id = run(bench)
    trials = spent(bench, job_id)
    assert trials[winner] >= 50
    assert all(8 <= count <= 24 for tuner, count in trials.items() if tuner != winner)
    assert sum(trials.values()) <= 100
    job = bench.get(job_id)
    assert job.trials_done == sum(trials.values()) == job.trials_planned
    assert job.placement is not None
    assert job.placement.toolchain.engine == winner.engine
    assert len(set(bench.script.measured)) == len(bench.script.measured)
    said = bench.report(job_id).choice
    assert sum("estimated model latency" in line for line in said) == 3
    assert any("too slow" in line for line in said)


def test_the_second_job_races_nothing(bench: Bench) -> None:
    first = run(bench)
    paid = len(bench.script.measured)
    second = run(bench)
    assert paid == len(bench.script.measured) == len(bench.records(first))
    assert bench.get(second).state is JobState.SUCCEEDED
    # The two bundles are the same, and so is their artifact: the job's own outcome tells of its choice.
    planned = bench.result(second, PlanResult)
    assert any("earlier searches cover" in line for line in planned.choice)


@pytest.mark.parametrize("trial", [8, 20, 40])
def test_a_race_that_lost_its_worker_goes_on(bench: Bench, trial: int) -> None:
    bench.kill_at(trial)
    job_id = bench.job(trials=100)
    bench.lose_worker(job_id)
    bench.finish(job_id)
    assert len(set(bench.script.measured)) == len(bench.script.measured)
    assert 90 <= len(bench.records(job_id)) <= 100


@pytest.mark.parametrize(
    ("method", "failure", "verdict"),
    [
        ("extract", CRASH, "failed: relay engine: it was killed by SIGSEGV"),
        ("tune", CRASH, "failed: relay engine: it was killed by SIGSEGV"),
        ("tune", REFUSAL, "none of its tuning tasks could be tuned"),
    ],
)
def test_a_strategy_that_fails_costs_itself(
    bench: Bench, method: str, failure: errors.TunesmithError, verdict: str
) -> None:
    bench.script.refuse = refusing(method, failure, tuner="ansor")
    job_id = run(bench)
    assert bench.get(job_id).state is JobState.SUCCEEDED
    assert "ansor" not in spent(bench, job_id)
    assert sum(spent(bench, job_id).values()) >= 70
    tuned = bench.result(job_id, TuneResult)
    (ansor,) = [each for each in tuned.strategies if each.tuner is Tuner.ANSOR]
    assert ansor.verdict == verdict


def test_a_strategy_whose_engines_die_later_is_not_said_to_have_nothing_left(bench: Bench) -> None:
    bench.script.speed = dict.fromkeys(set(Tuner) - {Tuner.AUTOTVM}, 3.0)
    rounds = Counter[str]()

    def refuse(asked: str, params: dict[str, Any]) -> None:
        if asked == "tune":
            rounds[params["tuner"]] += 1
            if params["tuner"] == "autotvm" and rounds["autotvm"] > 3:
                raise CRASH

    bench.script.refuse = refuse
    job_id = run(bench)
    assert bench.get(job_id).state is JobState.SUCCEEDED
    tuned = bench.result(job_id, TuneResult)
    (autotvm,) = [each for each in tuned.strategies if each.tuner is Tuner.AUTOTVM]
    assert autotvm.verdict == "engines rejected its remaining tasks or crashed on them"


@pytest.mark.parametrize("alternatives", [{}, {"direct": 0, "winograd": 0}])
def test_two_ways_to_compute_an_operator_count_once(bench: Bench, alternatives: dict[str, int]) -> None:
    bench.script.tasks = ("direct", "winograd", "dense")
    bench.script.alternatives = alternatives
    job_id = run(bench, tuner=Tuner.AUTOTVM, trials=24)
    tuned, tasks = bench.result(job_id, TuneResult), bench.tasks(job_id)
    [strategy] = tuned.strategies
    best = {task.extracted.description: task.best_latency or 0.0 for task in tasks}
    operators = [min(best["direct"], best["winograd"]) if alternatives else best["direct"] + best["winograd"]]
    assert strategy.estimate == pytest.approx(sum([*operators, best["dense"]]))


def test_a_canceled_race_stops(bench: Bench) -> None:
    bench.script.on_trial = lambda count: bench.cancel(job_id) if count == 30 else None
    bench.script.seconds_per_trial = 0.005
    job_id = bench.job(trials=200)
    bench.runtime().run_job(job_id)
    assert bench.get(job_id).state is JobState.CANCELED
    assert len(bench.script.measured) < 100


def test_a_budget_of_seconds_is_shared_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "IMPRESSION_SECONDS", 0.1)
    monkeypatch.setattr(racing, "RIVAL_SECONDS", 0.1)
    bench.script.seconds_per_trial = 0.005
    bench.script.space_size = 1000
    bench.script.speed = {"autotvm": 3.0, "metaschedule": 3.0}
    job_id = run(bench, trials=None, seconds=1.2)
    trials = spent(bench, job_id)
    # On a busy machine the budget may be spent before the third has its turn.
    assert {"autotvm", "ansor"} <= set(trials)
    assert sum(trials.values()) <= 240
    assert bench.report(job_id).published is Variant.TUNED


def test_a_network_without_convolutions_has_one_layout(bench: Bench) -> None:
    # The scripted engine finds the same workloads whatever the layout.
    job_id = run(bench, tuner=Tuner.METASCHEDULE)
    tuned = bench.result(job_id, TuneResult)
    assert [(each.layout, each.verdict) for each in tuned.strategies] == [
        (None, ""),
        ("NCHW", "its tuning tasks are the same as those of metaschedule"),
    ]


def test_layouts_race(bench: Bench) -> None:
    def rename(asked: str, params: dict[str, Any]) -> None:
        if asked == "extract":
            layout = params["options"]["layout"]
            bench.script.renamed = {"conv": f"conv {layout}"} if layout else {}

    bench.script.refuse = rename
    # More than the budget: a layout that is searched to its end leaves trials that no other is worth.
    bench.script.space_size = 1000
    job_id = run(bench, tuner=Tuner.METASCHEDULE)
    keys = Counter(record.key.workload_key for record in bench.records(job_id))
    assert keys['["ms:conv NCHW"]'] >= 8
    assert {params["options"]["layout"] for params in bench.script.asked("tune")} == {None, "NCHW"}
    # Both layouts have the dense layer: its trials are paid for once.
    assert 95 <= sum(keys.values()) <= 100


@pytest.fixture
def without_rivals(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is too small to compare tuners of one engine, and relax is clearly slower untuned."""
    monkeypatch.setattr(racing, "RIVAL_TRIALS", 1000)
    bench.script.speed = {"relax": 3.0}


@pytest.mark.usefixtures("without_rivals")
def test_an_exhausted_leader_hands_over(bench: Bench) -> None:
    bench.script.space_size = 10
    bench.script.speed = {"relax": 3.0, "ansor": 3.0, "metaschedule": 3.0}
    job_id = run(bench)
    planned = bench.result(job_id, PlanResult)
    assert [each.name for each in planned.strategies] == ["autotvm"]
    assert [each.name for each in planned.reserves] == [
        "autotvm free layout", "ansor", "metaschedule", "metaschedule NCHW",
    ]  # fmt: skip
    assert spent(bench, job_id) == {"autotvm": 20, "ansor": 20, "metaschedule": 20}
    tuned = bench.result(job_id, TuneResult)
    assert {each.name: each.verdict for each in tuned.strategies if each.verdict} == {
        "autotvm free layout": "its tuning tasks are the same as those of autotvm",
        "ansor": "its search space is exhausted",
        "metaschedule": "its search space is exhausted",
        "metaschedule NCHW": "its tuning tasks are the same as those of metaschedule",
    }


@pytest.mark.usefixtures("without_rivals")
def test_handing_over_can_be_left_out(bench: Bench) -> None:
    bench.script.space_size = 10
    bench.options = {"search_without": "hand-over"}
    job_id = run(bench)
    assert bench.result(job_id, PlanResult).reserves == ()
    assert spent(bench, job_id) == {"autotvm": 20}


@pytest.mark.usefixtures("without_rivals")
def test_reserves_are_left_alone_while_the_leader_gains(bench: Bench) -> None:
    job_id = run(bench, trials=60)
    assert spent(bench, job_id) == {"autotvm": 60}
    tuned = bench.result(job_id, TuneResult)
    assert [each.name for each in tuned.strategies] == ["autotvm"]
    assert (tuned.ended_by, tuned.unused_seconds) == ("trials", 0.0)


@pytest.mark.usefixtures("without_rivals")
def test_a_search_that_expects_nothing_more_stops_and_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "IMPRESSION_SECONDS", 0.2)
    bench.script.seconds_per_trial = 0.002
    bench.script.space_size = 10_000
    # The first schedules are the best ones.
    bench.script.slow_schedules = frozenset(range(4, 10_000))
    job_id = run(bench, trials=None, seconds=6.0)
    tuned = bench.result(job_id, TuneResult)
    assert tuned.ended_by == "settled"
    assert tuned.unused_seconds > 2.0
    assert {"autotvm", "ansor", "metaschedule"} <= set(spent(bench, job_id))
    assert bench.report(job_id).choice[-1] == (
        f"{tuned.unused_seconds:.0f} of 6 seconds of tuning were not used: no strategy expected to gain 1% more."
    )
    # The same search again would find as little.
    again = bench.result(run(bench, trials=None, seconds=6.0), PlanResult)
    assert again.trials_planned == 0


@pytest.mark.parametrize(("speed", "raced"), [(1.0, ["autotvm", "metaschedule"]), (3.0, ["autotvm"])])
@pytest.mark.usefixtures("without_rivals")
def test_engines_whose_untuned_times_overlap_are_both_kept(bench: Bench, speed: float, raced: list[str]) -> None:
    bench.script.speed = {"relax": speed}
    job_id = run(bench)
    assert [each.name for each in bench.result(job_id, PlanResult).strategies] == raced


@pytest.mark.parametrize(
    ("seconds", "span", "level"),
    [
        (1.2e-3, (1.1e-3, 1.4e-3), [Tuner.METASCHEDULE]),
        (1.2e-3, (1.31e-3, 1.4e-3), []),
        # One run of the leading engine was disturbed.
        (2.5e-3, (1.2e-3, 3e-3), []),
    ],
)
def test_rough_times_tell_engines_apart_that_noise_cannot_reverse(
    seconds: float, span: tuple[float, float], level: list[Tuner]
) -> None:
    baseline: Any = SimpleNamespace(
        ranges={"relay": (0.9e-3, 1.3e-3), "relax": span}, start={"relay": 1e-3, "relax": seconds}.get
    )
    context: Any = SimpleNamespace(results=SimpleNamespace(baseline=baseline))
    known = [Strategy(tuner=tuner) for tuner in (Tuner.AUTOTVM, Tuner.ANSOR, Tuner.METASCHEDULE)]
    known.append(Strategy(tuner=Tuner.METASCHEDULE, layout="NCHW"))
    assert [each.tuner for each in planning._level(context, known)] == level


@pytest.mark.usefixtures("without_rivals")
def test_wider_spaces_are_searched_where_held_ones_are_exhausted(bench: Bench) -> None:
    def widen(asked: str, params: dict[str, Any]) -> None:
        if asked == "extract":
            bench.script.space_size = 10 if params["options"]["keep_layout"] else 400

    bench.script.refuse = widen
    job_id = run(bench, tuner=Tuner.AUTOTVM)
    assert spent(bench, job_id) == {"autotvm": 100}
    tuned = bench.result(job_id, TuneResult)
    held, free = tuned.strategies
    assert (held.verdict, held.free_layout, free.free_layout) == ("its search space is exhausted", False, True)
    assert {params["options"]["keep_layout"] for params in bench.script.asked("tune")} == {True, False}
    assert len(set(bench.script.measured)) == len(bench.script.measured) == 100
    assert held.estimate == free.estimate
    # Both have the same records, of which one build is made.
    assert [each.name for each in bench.report(job_id).portfolio if each.tuner] == ["autotvm"]
