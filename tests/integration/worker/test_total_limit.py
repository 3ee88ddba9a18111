"""A job ends with its total limit: with the best verified build, or without any with ``time_limit``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from domain import errors
from domain.artifacts import Variant
from domain.jobs import JobState, Precision, Tuner
from domain.sizes import Size
from domain.stage_results import BaselineResult, PlanResult, TuneResult
from storage import jobs, stages
from tests.support.worker.fixtures import FACTS, Bench, Killed
from tests.support.worker.scripted import BOTH, HELLO, SPEC, refusing
from tuner.results import conditions
from worker import total_limit

Takes = Callable[[str, dict[str, Any]], float]
LIMIT = 600.0


@pytest.fixture
def clock(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that jobs are limited by, which only engines pass."""
    made = SimpleNamespace(seconds=0.0)

    def sleep(seconds: float) -> None:
        made.seconds += seconds

    monkeypatch.setattr(total_limit, "time", SimpleNamespace(monotonic=lambda: made.seconds))
    bench.script.sleep = sleep
    return made


def takes(seconds: float, *methods: str, engine: str | None = None, tuned: bool | None = None) -> Takes:
    """Requests of these methods take so long, of one engine or of all, for tuned builds or for untuned ones."""

    def of_request(method: str, params: dict[str, Any]) -> float:
        place = str(params.get("bundle") or params.get("out_dir") or "")
        fits = tuned is None or ("tuned-" in place and "untuned-" not in place) == tuned
        return seconds if method in methods and engine in (None, params["engine"]) and fits else 0.0

    return of_request


@pytest.mark.parametrize(
    ("methods", "stage"),
    [(["check"], "import"), (["compile"], "baseline"), (["run"], "baseline")],
)
def test_without_a_verified_build_the_job_fails_at_its_limit(
    bench: Bench, clock: SimpleNamespace, methods: list[str], stage: str
) -> None:
    bench.script.takes = takes(10_000, *methods)
    job_id = bench.run(total_seconds=LIMIT)
    failure = bench.failure(job_id)
    assert failure.code == "time_limit"
    assert (failure.details["stage"], failure.details["total_seconds"]) == (stage, LIMIT)
    assert "--max-minutes" in (failure.hint or "")
    assert clock.seconds <= LIMIT


def test_an_engine_that_takes_too_long_leaves_time_for_the_next(bench: Bench, clock: SimpleNamespace) -> None:
    bench.script.hellos = BOTH
    bench.script.takes = takes(10_000, "compile", engine="relay")
    job_id = bench.succeed(total_seconds=LIMIT, tuner=Tuner.AUTO)
    assert any("relay cannot build or run the model: " in note and "limit" in note for note in bench.notes(job_id))
    assert clock.seconds <= LIMIT
    bench.script.takes = takes(10_000, "compile")
    assert bench.failure(bench.run(total_seconds=LIMIT, tuner=Tuner.AUTO, threads=1)).code == "time_limit"


def test_another_engine_may_take_about_as_long_as_the_search(bench: Bench, clock: SimpleNamespace) -> None:
    """LLVM makes no end of some functions; an hour would be over before the search."""
    bench.script.hellos = BOTH
    bench.script.takes = takes(10_000, "compile", engine="relay")
    job_id = bench.succeed(trials=None, seconds=150.0, tuner=Tuner.AUTO)
    assert "relay cannot build or run the model: it exceeded its time limit; continuing without it" in bench.notes(
        job_id
    )
    assert clock.seconds < 600


@pytest.mark.parametrize("budget", [{"trials": None, "seconds": 36_000.0}, {"trials": 10_000}])
def test_the_search_ends_early_enough_to_finish(bench: Bench, clock: SimpleNamespace, budget: dict[str, Any]) -> None:
    bench.script.seconds_per_trial = 4.0
    bench.script.space_size = 5000
    bench.script.takes = takes(30.0, "compile")
    job_id = bench.succeed(total_seconds=LIMIT, **budget)
    assert bench.report(job_id).published is Variant.TUNED
    assert bench.result(job_id, TuneResult).ended_by == "total_seconds"
    assert 0.6 * LIMIT < clock.seconds <= LIMIT
    measured = len(bench.script.measured)
    again = bench.run(total_seconds=LIMIT, **budget)
    assert len(bench.script.measured) > measured, "the rest of the budget was not spent"
    assert bench.result(again, TuneResult).ended_by == "total_seconds"


def test_strategies_share_what_the_limit_leaves(bench: Bench, clock: SimpleNamespace) -> None:
    bench.script.hellos = BOTH
    bench.script.seconds_per_trial = 4.0
    bench.script.space_size = 5000
    job_id = bench.succeed(trials=None, seconds=36_000.0, total_seconds=3600.0, tuner=Tuner.AUTO)
    assert len(bench.result(job_id, PlanResult).strategies) > 1
    assert clock.seconds <= 3600.0
    bench.script.speed = {"relax": 3.0}
    small = bench.run(trials=None, seconds=36_000.0, total_seconds=LIMIT, tuner=Tuner.AUTO, threads=1)
    assert len(bench.result(small, PlanResult).strategies) == 1, "too little is left to compare tuners"


@pytest.mark.parametrize(
    "late",
    [
        takes(10_000, "compile", tuned=True),
        takes(10_000, "run", tuned=True),
    ],
)
@pytest.mark.parametrize("precision", [Precision.F32, Precision.AUTO])
def test_the_untuned_build_is_published_if_nothing_else_is_ready(
    bench: Bench, clock: SimpleNamespace, late: Takes, precision: Precision
) -> None:
    bench.script.takes = late
    job_id = bench.succeed(trials=8, total_seconds=LIMIT, precision=precision)
    assert bench.report(job_id).published is Variant.UNTUNED
    assert any("total limit" in note for note in bench.notes(job_id))
    assert clock.seconds <= LIMIT


def test_without_tuning_tasks_in_time_what_is_known_is_published(bench: Bench, clock: SimpleNamespace) -> None:
    ahead = iter([True])

    def seconds(method: str, params: dict[str, Any]) -> float:
        if method == "extract" and next(ahead, False):
            # Beside the builds, whose clock this is as well, it ends without a result.
            raise errors.EngineTimeout("it took too long")
        return {"extract": 10_000.0, "compile": 20.0}.get(method, 0.0)

    bench.script.takes = seconds
    bench.script.run_seconds = {**bench.script.run_seconds, "tuned-rewritten-relay": 0.5e-3}
    job_id = bench.succeed(total_seconds=LIMIT)
    assert (bench.script.measured, bench.report(job_id).published) == ([], Variant.TUNED), "rewritten, without records"
    assert any(sentence.startswith("Nothing was tuned: ") for sentence in bench.report(job_id).choice)
    assert clock.seconds <= LIMIT


def test_a_build_for_which_no_time_is_left_is_not_begun(bench: Bench, clock: SimpleNamespace) -> None:
    bench.script.seconds_per_trial = 4.0
    bench.script.takes = takes(350.0, "compile")
    job_id = bench.run(trials=None, seconds=36_000.0, total_seconds=LIMIT)
    assert bench.report(job_id).published is Variant.UNTUNED
    verdicts = [each.verdict for each in bench.report(job_id).portfolio]
    assert "not built: the job's total limit leaves no time" in verdicts
    assert clock.seconds <= LIMIT


def test_the_time_of_earlier_attempts_counts(
    bench: Bench, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = bench.job(total_seconds=LIMIT)

    def die(method: str, _: dict[str, Any]) -> float:
        if method == "compile":
            raise Killed
        return 0.0

    bench.script.takes = die
    bench.lose_worker(job_id)
    monkeypatch.setattr(total_limit, "running_seconds", lambda *_: LIMIT)
    bench.runtime().run_job(job_id)
    assert bench.failure(job_id).code == "time_limit"


@pytest.fixture
def sizes(bench: Bench) -> dict[str, Any]:
    """The request of a job of two sizes."""
    bench.script.hellos = {"relay": HELLO, "onnx": HELLO, "library": HELLO}
    bench.script.standalone = True
    made = tuple(
        Size(name=f"x.0={batch}", values={"x.0": batch}, input_shapes={"x": (batch, 3, 8, 8)}, share=0.5)
        for batch in (1, 4)
    )
    return {"sizes": made, "facts": replace(FACTS, inputs=(replace(SPEC, shape=(None, 3, 8, 8)),))}


def test_sizes_share_the_limit(bench: Bench, clock: SimpleNamespace, sizes: dict[str, Any]) -> None:
    bench.script.seconds_per_trial = 4.0
    bench.script.space_size = 5000
    job_id = bench.succeed(trials=10_000, total_seconds=LIMIT, **sizes)
    with bench.database.reading() as session:
        found = [stages.result(session, part.id, TuneResult) for part in jobs.parts(session, job_id)]
    assert [each.ended_by for each in found if each] == ["total_seconds", "total_seconds"]
    assert 0.6 * LIMIT < clock.seconds <= LIMIT


def test_a_job_whose_sizes_are_all_verified_is_published_even_after_its_limit(
    bench: Bench, clock: SimpleNamespace, sizes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(method: str, _: dict[str, Any]) -> float:
        if method == "join":
            raise Killed
        return 0.0

    bench.script.takes = die
    job_id = bench.job(total_seconds=LIMIT, **sizes)
    bench.lose_worker(job_id)
    bench.script.takes = takes(10.0, "join", "run")
    monkeypatch.setattr(total_limit, "running_seconds", lambda *_: LIMIT)
    bench.finish(job_id)


def test_a_job_without_a_limit_has_all_the_time(bench: Bench, clock: SimpleNamespace) -> None:
    bench.script.takes = takes(500.0, "check", "compile", "run", "extract")
    bench.succeed()
    assert clock.seconds > LIMIT


@pytest.mark.parametrize("precision", [Precision.F32, Precision.AUTO])
def test_every_request_of_a_job_can_be_canceled_and_has_a_limit(bench: Bench, precision: Precision) -> None:
    bench.script.hellos = BOTH
    bench.script.precisions = {"relax": ["f32", "bf16", "int8"]}
    bench.script.rewritings = {"aligned": 1}
    bench.succeed(tuner=Tuner.AUTO, precision=precision)
    assert bench.script.unattended == []


@pytest.mark.parametrize(("seconds", "engines"), [(30.0, {"relax"}), (600.0, {"relay", "relax"})])
def test_another_engine_is_tried_if_the_budget_is_worth_it(
    bench: Bench, clock: SimpleNamespace, seconds: float, engines: set[str]
) -> None:
    bench.script.hellos = BOTH
    bench.script.takes = takes(16.0, "check")
    job_id = bench.run(trials=None, seconds=seconds, tuner=Tuner.AUTO)
    assert set(bench.result(job_id, BaselineResult).engines) == engines
    sentence = "relay was not tried: the budget is too small for another engine."
    assert (sentence in bench.report(job_id).choice) == (len(engines) == 1)


def test_a_quick_engine_builds_the_rewritten_network_for_small_budgets(bench: Bench, clock: SimpleNamespace) -> None:
    """It often gains more than the search of a few seconds."""
    bench.script.hellos = BOTH
    bench.script.rewritings = {"aligned": 1}
    bench.script.takes = takes(20.0, "compile", tuned=False)
    bench.script.run_seconds = {**bench.script.run_seconds, "tuned-rewritten-relax": 0.5e-3}
    job_id = bench.run(trials=None, seconds=30.0, tuner=Tuner.AUTO)
    assert bench.result(job_id, BaselineResult).rewritten == {"relax": 0.5e-3}
    assert bench.report(job_id).portfolio[0].name == "rewritten relax"


def test_the_engine_that_makes_most_of_the_rewritten_network_leads(bench: Bench) -> None:
    bench.script.hellos = BOTH
    bench.script.rewritings = {"aligned": 1}
    bench.script.run_seconds = {**bench.script.run_seconds, "tuned-rewritten-relax": 0.5e-3}
    job_id = bench.run(tuner=Tuner.AUTO)
    found = bench.result(job_id, BaselineResult)
    assert (found.engine, found.rewritten) == ("relax", {"relay": 2e-3, "relax": 0.5e-3})
    assert "relax gives correct results and runs untuned in 2 ms, rewritten in 0.5 ms: it leads." in found.choice
    # No estimate of others keeps a build from the comparison that was made already.
    assert bench.report(job_id).portfolio[0].name == "rewritten relax"


def test_a_build_of_the_rewritten_network_that_is_wrong_leads_nowhere(bench: Bench) -> None:
    """It is verified on one input, and the search is then the other engine's."""
    bench.script.hellos = BOTH
    bench.script.run_seconds = {**bench.script.run_seconds, "tuned-rewritten-relax": 0.5e-3}
    bench.script.wrong = frozenset({"tuned-relax"})
    job_id = bench.run(tuner=Tuner.AUTO)
    found = bench.result(job_id, BaselineResult)
    assert (found.engine, set(found.rewritten)) == ("relay", {"relay"})
    assert {asked["engine"] for asked in bench.script.asked("tune")} == {"relay"}
    checked = [asked for asked in bench.script.asked("run") if "rewritten-relax" in str(asked.get("bundle"))]
    assert Path(checked[0]["inputs"]).name == "0.npz"
    assert "wrong results as relax builds it (output y: " in " ".join(bench.notes(job_id))


def test_a_build_of_the_rewritten_network_that_crashes_leads_nowhere(bench: Bench) -> None:
    bench.script.hellos = BOTH
    bench.script.run_seconds = {**bench.script.run_seconds, "tuned-rewritten-relax": 0.5e-3}
    error = errors.EngineCrashed("relax engine: it was killed by SIGSEGV")
    bench.script.refuse = refusing("time", error, bundle="rewritten-relax")
    job_id = bench.run(tuner=Tuner.AUTO)
    found = bench.result(job_id, BaselineResult)
    assert (found.engine, set(found.rewritten)) == ("relay", {"relay"})
    assert bench.get(job_id).state is JobState.SUCCEEDED


@pytest.mark.parametrize(("seconds", "allowed"), [(30.0, 10.0), (600.0, 560.0)])
def test_timings_are_repeated_as_long_as_the_search(
    bench: Bench, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, seconds: float, allowed: float
) -> None:
    given: list[float] = []
    until_quiet = conditions.until_quiet

    def repeated(*arguments: Any, seconds: float) -> Any:
        given.append(seconds)
        return until_quiet(*arguments, seconds=seconds)

    monkeypatch.setattr(conditions, "until_quiet", repeated)
    bench.script.takes = takes(20.0, "compile")
    job_id = bench.run(trials=None, seconds=seconds)
    assert given == [pytest.approx(allowed)]
    report = bench.report(job_id)
    assert {len(found.seeds) for found in report.verifications.values()} == {3}, "verification is never shortened"
