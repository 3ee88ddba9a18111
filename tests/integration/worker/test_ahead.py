"""Requests that keep one core each run side by side: tasks are extracted while untuned builds are made."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from domain import errors
from domain.jobs import Tuner
from domain.ports import Canceled
from domain.stage_results import BaselineResult, ImportResult, PlanResult
from tests.support.worker.fixtures import Bench, Killed
from tests.support.worker.scripted import BOTH, refusing
from worker.pipeline import reuse


def is_untuned(method: str, params: dict[str, Any]) -> bool:
    return method == "compile" and params["tuner"] is None


def test_both_go_on_at_the_same_time_in_two_processes(bench: Bench) -> None:
    both = threading.Barrier(2)

    def meet(method: str, params: dict[str, Any]) -> None:
        if method == "extract" or is_untuned(method, params):
            both.wait(10)

    bench.script.refuse = meet
    job_id = bench.succeed()
    assert len(bench.script.asked("extract")) == 1
    assert bench.result(job_id, PlanResult).tasks > 0


@pytest.mark.parametrize("rewritten", [False, True])
def test_engines_build_side_by_side(bench: Bench, rewritten: bool) -> None:
    both = threading.Barrier(2)

    def meet(method: str, params: dict[str, Any]) -> None:
        if is_untuned(method, params) and ("rewritten" in params["out_dir"]) is rewritten:
            both.wait(10)

    bench.script.hellos = BOTH
    bench.script.refuse = meet
    job_id = bench.succeed(tuner=Tuner.AUTO)
    found = bench.result(job_id, BaselineResult)
    assert set(found.engines) == set(found.rewritten) == {"relay", "relax"}


def test_an_engine_imports_the_rewritten_model_while_it_checks_the_model(bench: Bench) -> None:
    both = threading.Barrier(2)

    def meet(method: str, params: dict[str, Any]) -> None:
        if method == "check" and params["engine"] == "relay":
            both.wait(10)

    bench.script.hellos = BOTH
    bench.script.rewritings = {"aligned": 1}
    bench.script.refuse = meet
    job_id = bench.succeed(tuner=Tuner.AUTO)
    assert set(bench.result(job_id, ImportResult).rewritten) == {"relay", "relax"}


def test_nobody_waits_for_tasks_of_an_engine_whose_build_is_wrong(bench: Bench) -> None:
    bench.script.hellos = BOTH
    bench.script.wrong = frozenset({"untuned-relay"})
    bench.script.takes = lambda method, params: 600.0 if (method, params["engine"]) == ("extract", "relay") else 0.0
    started = time.monotonic()
    job_id = bench.succeed(tuner=Tuner.AUTO)
    assert bench.result(job_id, PlanResult).tuner is Tuner.METASCHEDULE
    assert time.monotonic() - started < 60


def test_known_tasks_are_not_extracted_and_need_no_other_process(bench: Bench) -> None:
    bench.run()
    bench.script.started.clear()
    bench.run(threads=1, trials=4)
    first = bench.script.started.count("relay")
    bench.script.started.clear()
    bench.run(trials=64)
    assert len(bench.script.asked("extract")) == 2
    assert bench.script.started.count("relay") == first - 1


def test_tasks_that_another_job_stores_meanwhile_are_not_extracted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run()
    known, first = reuse.known, iter([None])
    monkeypatch.setattr(reuse, "known", lambda context: next(first, known(context)))
    bench.succeed(trials=64)
    assert len(bench.script.asked("extract")) == 1


def test_a_failure_is_reported_by_the_plan_alone(bench: Bench) -> None:
    bench.script.refuse = refusing("extract", errors.EngineRequestFailed("extract_failed", "no task"))
    failure = bench.failure(bench.run())
    assert failure.code == "engine_request_failed"
    assert failure.details["engine_code"] == "extract_failed"
    assert len(bench.script.asked("extract")) == 1


def test_a_job_that_fails_does_not_wait_for_the_extraction(bench: Bench) -> None:
    def refuse(method: str, params: dict[str, Any]) -> None:
        if is_untuned(method, params):
            raise errors.EngineRequestFailed("compile_failed", "no build")

    bench.script.takes = lambda method, _: 600.0 if method == "extract" else 0.0
    bench.script.refuse = refuse
    started = time.monotonic()
    assert bench.failure(bench.run()).details["engine_code"] == "compile_failed"
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("error", [Killed(), Canceled()])
def test_what_ends_the_untuned_builds_ends_the_extraction(bench: Bench, error: BaseException) -> None:
    begun, ended = threading.Event(), threading.Event()

    def refuse(method: str, params: dict[str, Any]) -> None:
        if method == "extract":
            begun.set()
            assert ended.wait(10)
        elif is_untuned(method, params):
            assert begun.wait(10)
            ended.set()
            raise error

    bench.script.refuse = refuse
    job_id = bench.job()
    if isinstance(error, Killed):
        with pytest.raises(Killed):
            bench.runtime().run_job(job_id)
    else:
        bench.runtime().run_job(job_id)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("extract")]
