"""Jobs of several sizes, with scripted engines: their parts, and the library that is linked from them."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from domain import errors
from domain.artifacts import Artifact
from domain.jobs import EventKind, Job, JobState, Tuner
from domain.sizes import Size
from domain.stage_results import BaselineResult
from storage import jobs
from tests.support.worker import fixtures
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import BOTH, HELLO, SPEC
from tuner.results import bundle
from worker.engines import EnginePool
from worker.pipeline import publishing, running
from worker.pipeline.ahead import AHEAD
from worker.pipeline.context import JobContext

SIZES = tuple(
    Size(name=f"x.0={batch}", values={"x.0": batch}, input_shapes={"x": (batch, 3, 8, 8)}, share=share)
    for batch, share in ((1, 0.25), (4, 0.75))
)
LENGTHS = tuple(
    Size(name=f"x.2={length}", values={"x.2": length}, input_shapes={"x": (1, 3, length, 8)}, share=0.5)
    for length in (8, 16)
)


FACTS = replace(fixtures.FACTS, inputs=(replace(SPEC, shape=(None, 3, None, 8)),))


@pytest.fixture(autouse=True)
def _libraries(bench: Bench) -> None:
    bench.script.hellos = {"relay": HELLO, "onnx": HELLO, "library": HELLO}
    bench.script.standalone = True


def parts(bench: Bench, job_id: str) -> list[Job]:
    with bench.database.reading() as session:
        return jobs.parts(session, job_id)


def told(bench: Bench, job_id: str) -> list[dict[str, Any]]:
    return [event.data for event in bench.events(job_id, EventKind.STAGE)]


def test_each_size_is_tuned_by_a_job_of_its_own_and_all_become_one_bundle(bench: Bench) -> None:
    job_id = bench.succeed(facts=FACTS, sizes=SIZES, trials=32)
    made = parts(bench, job_id)
    assert [(part.state, part.request.budget.trials) for part in made] == [
        (JobState.SUCCEEDED, 8), (JobState.SUCCEEDED, 24),
    ]  # fmt: skip
    [joined] = bench.script.asked("join")
    assert [part["values"] for part in joined["parts"]] == [[1], [4]]
    assert joined["dimensions"] == [{"name": "x.0", "splits": True, "pads": False}]
    assert joined["inputs"] == {"x": ["x.0", None, None, None]}
    artifact = bench.artifact(job_id)
    assert (artifact.input_shapes, artifact.sizes, artifact.verified) == ({"x": (0, 3, 8, 8)}, SIZES, True)
    manifest = bundle.open_bundle(bench.blobs.path(artifact.digest), bench.home / "opened")
    assert manifest.sizes == SIZES
    assert manifest.inputs[0].shape == ("x.0", 3, 8, 8)
    evidence = json.loads((bench.home / "opened" / "evidence.json").read_text())
    assert [each["job"] for each in evidence["sizes"]] == [part.id for part in made]
    assert all(each["benchmark"]["tuned"]["samples"] for each in evidence["sizes"])
    readme = (bench.home / "opened" / "README.md").read_text()
    assert "| x.0=4 | 75% | 1.0000 | 2.0000 | 3.0000 |" in readme
    assert artifact.report.speedup_over_untuned == pytest.approx(2.0)
    assert artifact.report.speedup_over_reference == pytest.approx(3.0)
    assert artifact.deleted_at is None
    assert all(bench.artifact(part.id).deleted_at for part in made), "they hold the weights once more"


@pytest.mark.parametrize("fastest", ["relay", "relax"])
def test_later_sizes_are_built_by_the_engine_that_led_the_first(bench: Bench, fastest: str) -> None:
    bench.script.hellos = {**BOTH, "library": HELLO}
    untuned = dict.fromkeys(("untuned-relay", "untuned-relax"), bench.script.run_seconds["untuned"])
    untuned[f"untuned-{fastest}"] *= 0.9
    bench.script.run_seconds = {**bench.script.run_seconds, **untuned}
    first, second = parts(bench, bench.run(facts=FACTS, sizes=SIZES, trials=32, tuner=Tuner.AUTO))
    assert set(bench.result(first.id, BaselineResult).engines) == {"relay", "relax"}
    assert set(bench.result(second.id, BaselineResult).engines) == {fastest}
    [other] = {"relay", "relax"} - {fastest}
    assert any(each.startswith(f"{other} was not tried: the engine") for each in bench.report(second.id).choice)


def test_the_progress_of_the_parts_is_that_of_the_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.pipeline.parts._MIRROR_SECONDS", 0.01)
    bench.script.seconds_per_trial = 0.01
    job_id = bench.run(facts=FACTS, sizes=SIZES)
    working = [each for each in told(bench, job_id) if each["status"] == "working"]
    assert any(each["message"] == "size 2 of 2 (x.0=4): tune" for each in working)
    shares = [each["share"] for each in working]
    assert shares == sorted(shares)
    assert shares[-1] > 0.25


def test_a_part_that_fails_fails_the_job_and_is_named(bench: Bench) -> None:
    bench.script.wrong = frozenset({"untuned", "tuned"})
    job_id = bench.run(facts=FACTS, sizes=SIZES)
    failure = bench.failure(job_id)
    first, second = parts(bench, job_id)
    assert (failure.code, failure.details["code"]) == ("size_failed", "verification_failed")
    assert (failure.details["job"], failure.details["size"]) == (first.id, "x.0=1")
    assert (first.state, second.state) == (JobState.FAILED, JobState.CANCELED)


def test_a_canceled_job_ends_with_its_parts(bench: Bench) -> None:
    job_id = bench.job(facts=FACTS, sizes=SIZES)
    bench.script.on_trial = lambda done: bench.cancel(job_id) if done == 3 else None
    bench.script.seconds_per_trial = 0.05
    bench.runtime().run_job(job_id)
    assert [each.state for each in (bench.get(job_id), *parts(bench, job_id))] == [JobState.CANCELED] * 3


def test_a_worker_that_takes_over_runs_what_is_missing(bench: Bench) -> None:
    job_id = bench.job(facts=FACTS, sizes=SIZES)
    worker = bench.runtime()
    bench.script.on_trial = lambda done: worker.shutdown.set() if done == 12 else None
    worker.run_job(job_id)
    first, second = parts(bench, job_id)
    assert (bench.get(job_id).state, first.state, second.state) == (
        JobState.QUEUED, JobState.SUCCEEDED, JobState.QUEUED,
    )  # fmt: skip
    bench.finish(job_id)
    measured = bench.script.measured
    assert len(measured) == len(set(measured)), "nothing is paid for twice"


def test_a_worker_of_another_kind_does_not_go_on(bench: Bench) -> None:
    """The sizes of one library are for one target."""
    job_id = bench.job(facts=FACTS, sizes=SIZES)
    worker = bench.runtime()
    bench.script.on_trial = lambda done: worker.shutdown.set() if done == 12 else None
    worker.run_job(job_id)
    measured = len(bench.script.measured)
    bench.script.hellos = {name: {**HELLO, "mcpu": "skylake-avx512"} for name in bench.script.hellos}
    bench.runtime().run_job(job_id)
    failure = bench.failure(job_id)
    assert (failure.code, failure.details["size"]) == ("size_failed", "x.0=1")
    assert failure.message.startswith("x.0=1 was tuned for llvm -mcpu=znver3 ")
    assert len(bench.script.measured) == measured


def test_a_full_disk_gives_the_whole_job_back_and_it_goes_on_later(bench: Bench) -> None:
    full = [errors.EngineRequestFailed("disk_full", "no space")]

    def refuse(method: str, _: dict[str, Any]) -> None:
        if method == "tune" and full:
            raise full.pop()

    bench.script.refuse = refuse
    job_id = bench.run(facts=FACTS, sizes=SIZES)
    assert [each.state for each in (bench.get(job_id), *parts(bench, job_id))] == [JobState.QUEUED] * 3
    assert (bench.waiting(), bench.waiting(seconds=61)) == ([], [job_id])
    bench.finish(job_id)


def test_a_database_that_is_away_at_the_end_costs_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    finish, away = publishing.finish, [OperationalError("COMMIT", {}, Exception("the connection was closed"))]

    def unless_away(session: Session, context: JobContext, made: Artifact) -> None:
        if context.request.sizes and away:
            raise away.pop()
        finish(session, context, made)

    monkeypatch.setattr(publishing, "finish", unless_away)
    job_id = bench.succeed(facts=FACTS, sizes=SIZES)
    assert (bench.get(job_id).attempts, len(bench.script.asked("join"))) == (1, 1)


def test_only_the_leading_engine_has_a_second_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage import starts one of an engine that is still busy, in a later size also of one that does not lead."""
    pools: list[EnginePool] = []
    idle: list[EnginePool] = []
    both = threading.Barrier(2)

    class SeenPool(EnginePool):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            pools.append(self)

    def look(method: str, params: dict[str, Any]) -> None:
        if (method, params.get("engine")) == ("check", "relay"):
            both.wait(10)
        if method == "tune":
            idle.extend(pool for pool in pools if pool.is_alive("relay", role=AHEAD))

    monkeypatch.setattr(running, "EnginePool", SeenPool)
    bench.script.hellos = {**BOTH, "library": HELLO}
    bench.script.rewritings = {"aligned": 1}
    bench.script.run_seconds = {**bench.script.run_seconds, "untuned-relax": 1e-3}
    bench.script.refuse = look
    _, second = parts(bench, bench.succeed(facts=FACTS, sizes=SIZES, tuner=Tuner.AUTO))
    assert set(bench.result(second.id, BaselineResult).engines) == {"relax"}
    assert not idle


def test_padding_is_proved_before_anything_is_tuned(bench: Bench) -> None:
    bench.script.other_in_other_sizes = frozenset({"padded"})
    job_id = bench.run(facts=FACTS, sizes=LENGTHS, padding={"x": 0.0})
    failure = bench.failure(job_id)
    assert failure.code == "padding_changes_results"
    assert "padding x.2 from 8 to 16 with x=0 changes y" in failure.message
    assert bench.script.asked("tune") == []


def test_rows_that_depend_on_each_other_are_not_split(bench: Bench) -> None:
    bench.script.other_in_other_sizes = frozenset({"split"})
    report = bench.report(bench.run(facts=FACTS, sizes=SIZES))
    assert bench.script.asked("join")[0]["dimensions"] == [{"name": "x.0", "splits": False, "pads": False}]
    assert any("Only the exact values of x.0 are served" in sentence for sentence in report.choice)


def test_padded_lengths_are_verified_between_the_sizes(bench: Bench) -> None:
    bench.succeed(facts=FACTS, sizes=LENGTHS, padding={"x": 0.0})
    assert bench.script.asked("join")[0]["dimensions"] == [{"name": "x.2", "splits": False, "pads": True}]
    assert any("sized-15" in params["inputs"] for params in bench.script.asked("run"))


def test_a_joint_library_with_other_results_is_not_published(bench: Bench) -> None:
    bench.script.wrong = frozenset({"joint"})
    failure = bench.failure(bench.run(facts=FACTS, sizes=SIZES))
    assert failure.code == "verification_failed"
    assert "gives other results than that of this size alone" in failure.message


def test_a_model_that_needs_tvm_fails_before_it_is_tuned(bench: Bench) -> None:
    bench.script.standalone = False
    failure = bench.failure(bench.run(facts=FACTS, sizes=SIZES))
    assert (failure.code, failure.details["code"]) == ("size_failed", "invalid_option")
    assert bench.script.asked("tune") == []
