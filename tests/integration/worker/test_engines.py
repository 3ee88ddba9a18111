"""Several engines, tuners, precisions and runners, with scripted engines."""

from __future__ import annotations

from typing import Any

import pytest

from domain import errors
from domain.artifacts import Variant
from domain.jobs import BundleFormat, EventKind, JobState, Precision, RpcOptions, RunnerKind, Stage, Tuner, TunerOptions
from domain.targets import Device
from storage import workers
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import BOTH, THREE, refusing
from tuner.host import hardware
from tuner.search import racing
from worker import clock

BOARD = RpcOptions(tracker="board:9190", key="rasp4b")
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"


@pytest.fixture(autouse=True)
def _race_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "IMPRESSION_TRIALS", 16)
    monkeypatch.setattr(racing, "RIVAL_TRIALS", 1)


def run(bench: Bench, **request: Any) -> str:
    return bench.run(**{"trials": 16, **request})


@pytest.mark.parametrize(
    ("tuner", "engine"), [(Tuner.AUTOTVM, "relay"), (Tuner.ANSOR, "relay"), (Tuner.METASCHEDULE, "relax")]
)
def test_the_tuner_decides_the_engine(bench: Bench, tuner: Tuner, engine: str) -> None:
    bench.script.hellos = THREE
    job_id = run(bench, tuner=tuner)
    found = bench.artifact(job_id)
    assert set(bench.script.started) == {engine, "onnx"}
    assert {record.tuner for record in bench.records(job_id)} == {str(tuner)}
    assert found.toolchain.startswith(f"{engine}/")
    assert found.report.engines == {Variant.UNTUNED: found.toolchain, Variant.TUNED: found.toolchain}
    assert {params["tuner"] for params in bench.script.asked("tune")} == {str(tuner)}
    assert [params["tuner"] for params in bench.script.asked("compile")] == [None, str(tuner)]


def test_builds_know_precision_format_and_options(bench: Bench) -> None:
    options = TunerOptions(keep_layout=False)
    job_id = run(
        bench, precision=Precision.FP16, bundle_format=BundleFormat.OBJECT, tuner_options=options, tuner=Tuner.AUTOTVM
    )
    for method in ("compile", "extract", "tune"):
        for params in bench.script.asked(method):
            assert (params["precision"], params["options"]["keep_layout"]) == ("fp16", False)
    assert {params["format"] for params in bench.script.asked("compile")} == {"object"}
    assert {params["precision"] for params in bench.script.asked("compare")} == {"fp16"}
    found = bench.artifact(job_id)
    assert (found.precision, found.bundle_format, found.verified) == ("fp16", "object", True)
    assert {each.precision for each in found.report.verifications.values()} == {"fp16"}


def test_an_explicit_tuner_never_falls_over(bench: Bench) -> None:
    bench.script.hellos = BOTH
    bench.script.wrong = frozenset({"untuned-relax"})
    job_id = run(bench, tuner=Tuner.METASCHEDULE)
    failure = bench.failure(job_id)
    assert failure.code == "verification_failed"
    assert "relay" not in bench.script.started


def test_a_tuner_that_is_not_installed(bench: Bench) -> None:
    failure = bench.failure(run(bench, tuner=Tuner.METASCHEDULE))
    assert failure.code == "engine_not_installed"


@pytest.mark.parametrize(("wrong", "left"), [("relay", Tuner.METASCHEDULE), ("relax", Tuner.AUTOTVM)])
def test_auto_falls_over_from_an_engine_that_imports_wrongly(bench: Bench, wrong: str, left: Tuner) -> None:
    bench.script.hellos = BOTH
    bench.script.wrong = frozenset({f"untuned-{wrong}"})
    job_id = run(bench)
    assert {record.tuner for record in bench.records(job_id)} == {str(left)}
    assert any(wrong in line and "differ from" in line for line in bench.report(job_id).choice)
    assert any("continuing without it" in note for note in bench.notes(job_id))
    placement = bench.get(job_id).placement
    assert placement is not None
    assert placement.toolchain.engine == left.engine


def test_errors_are_told_engine_by_engine(bench: Bench) -> None:
    bench.script.hellos = BOTH
    bench.script.wrong = frozenset({"untuned"})
    told = bench.failure(run(bench)).details["verifications"]
    assert set(told) == {"untuned relay", "untuned relax"}
    assert all((error["output"], error["rtol"], error["passed"]) == ("y", 1e-4, False) for [error] in told.values())


@pytest.mark.parametrize(("unable", "left"), [("relay", Tuner.METASCHEDULE), ("relax", Tuner.AUTOTVM)])
def test_auto_falls_over_from_an_engine_that_cannot_import(bench: Bench, unable: str, left: Tuner) -> None:
    error = errors.EngineRequestFailed("unsupported_operators", "no", details={"operators": {"Det": 2}})
    bench.script.hellos = BOTH
    bench.script.refuse = refusing("check", error, engine=unable)
    job_id = run(bench)
    assert {record.tuner for record in bench.records(job_id)} == {str(left)}
    assert f"{unable} cannot import the model: it lacks Det (2×)." in bench.report(job_id).choice


def test_if_no_engine_builds_the_model_the_preferred_one_says_why(bench: Bench) -> None:
    def refuse(method: str, params: dict[str, Any]) -> None:
        if method == "compile":
            raise errors.EngineRequestFailed("compile_failed", f"{params['engine']} cannot")

    bench.script.hellos, bench.script.refuse = BOTH, refuse
    assert "relay cannot" in bench.failure(bench.run()).message


def test_operators_that_no_engine_has_are_told_for_each(bench: Bench) -> None:
    def refuse(method: str, params: dict[str, Any]) -> None:
        if method == "check":
            operators = {"Det": 2} if params["engine"] == "relay" else {"Einsum": 1}
            raise errors.EngineRequestFailed("unsupported_operators", "no", details={"operators": operators})

    bench.script.hellos = BOTH
    bench.script.refuse = refuse
    failure = bench.failure(run(bench))
    assert (failure.code, failure.details["operators"]) == ("unsupported_operators", {"Det": 2})
    assert failure.details["engines"]["relax"]["operators"] == {"Einsum": 1}


@pytest.mark.parametrize(("slow", "leader"), [("relay", Tuner.METASCHEDULE), ("relax", Tuner.AUTOTVM)])
def test_with_a_small_budget_the_fastest_untuned_engine_leads(bench: Bench, slow: str, leader: Tuner) -> None:
    bench.script.hellos = BOTH
    bench.script.speed = {slow: 3.0}
    job_id = run(bench, trials=8)
    assert {record.tuner for record in bench.records(job_id)} == {str(leader)}
    assert any("the budget is too small" in line for line in bench.report(job_id).choice)


def test_with_nothing_to_tune_no_reason_is_given_for_a_leader(bench: Bench) -> None:
    bench.script.hellos = BOTH
    bench.script.tasks = ()
    job_id = run(bench, trials=8)
    choice = bench.report(job_id).choice
    for tuner in (Tuner.AUTOTVM, Tuner.METASCHEDULE):
        assert f"{tuner} finds nothing to tune in the model." in choice
    assert not any("too small" in line or "leads" in line for line in choice if "untuned in" not in line)


def test_the_untuned_variant_is_the_fastest_engines(bench: Bench) -> None:
    bench.script.hellos = BOTH
    bench.script.speed = {"relax": 0.5, "metaschedule": 9.0}
    job_id = run(bench, trials=100)
    found = bench.report(job_id)
    assert found.engines[Variant.UNTUNED].startswith("relax/")


def test_a_small_job_follows_what_earlier_searches_cover(bench: Bench) -> None:
    bench.script.hellos = BOTH
    first = run(bench, trials=16)
    bench.script.speed = {"relay": 9.0}
    second = run(bench, trials=16)
    assert {record.tuner for record in bench.records(first)} == {"autotvm"}
    assert bench.records(second) == []


def test_rpc_measures_where_the_request_says(bench: Bench) -> None:
    job_id = run(bench, target=ARM, threads=4, runner=RunnerKind.RPC, rpc=BOARD, tuner=Tuner.AUTOTVM)
    placement = bench.get(job_id).placement
    assert placement is not None
    assert (placement.device.key, placement.device.threads) == ("rpc/rasp4b/t4", 4)
    runner = {"kind": "rpc", "tracker": "board:9190", "key": "rasp4b", "session_timeout": 60.0}
    for method in ("tune", "run", "time"):
        asked = [params for params in bench.script.asked(method) if params["engine"] == "relay"]
        assert asked
        assert all((params["runner"], params["target"]) == (runner, ARM) for params in asked if method != "tune")
        assert all(params["runner"] == runner for params in asked)
    assert not [params for params in bench.script.asked("time") if params["engine"] == "onnx"]
    found = bench.report(job_id)
    assert found.speedup_over_reference is None
    assert set(found.timings) == {Variant.UNTUNED, Variant.TUNED}
    assert all(each.passed for each in found.verifications.values())


def test_a_lost_device_is_told_and_quarantined(bench: Bench) -> None:
    bench.script.lost = "10.0.0.7:9090"
    job_id = run(bench, target=ARM, threads=4, runner=RunnerKind.RPC, rpc=BOARD, tuner=Tuner.AUTOTVM)
    assert bench.get(job_id).state is JobState.SUCCEEDED
    with bench.database.reading() as session:
        (device,) = workers.quarantined(session, clock.now())
    assert (device.id, device.job_id) == ("board:9190/rasp4b/10.0.0.7:9090", job_id)
    assert sum("10.0.0.7:9090 lost" in note for note in bench.notes(job_id)) == 1


def test_a_quarantined_device_is_avoided(bench: Bench) -> None:
    with bench.database.transaction() as session:
        for place in ("board:9190/rasp4b/10.0.0.7:9090", "board:9190/rasp4/10.0.0.8:9090"):
            workers.quarantine(session, place, job_id="j", reason="it fell silent", now=clock.now(), seconds=60)
    run(bench, target=ARM, threads=4, runner=RunnerKind.RPC, rpc=BOARD, tuner=Tuner.AUTOTVM)
    for method in ("tune", "run", "time"):
        asked = [params["runner"] for params in bench.script.asked(method) if params["engine"] == "relay"]
        assert {tuple(runner["avoid"]) for runner in asked} == {("10.0.0.7:9090",)}


def test_the_trackers_queue_is_no_tuning_time(bench: Bench) -> None:
    bench.script.queue_seconds = 1e6
    bench.script.seconds_per_trial = 0.01
    rpc = {"target": ARM, "threads": 4, "runner": RunnerKind.RPC, "rpc": BOARD}
    job_id = run(bench, trials=24, seconds=0.2, tuner=Tuner.AUTOTVM, **rpc)
    assert len(bench.records(job_id)) == 24


@pytest.mark.parametrize(
    ("request_", "code", "word"),
    [
        ({"runner": RunnerKind.RPC, "rpc": BOARD, "threads": 4}, "unsupported_target", "native"),
        ({"runner": RunnerKind.RPC, "rpc": BOARD, "target": ARM}, "invalid_option", "--threads"),
        ({"target": ARM}, "unsupported_target", "'rpc'"),
        ({"target": "cuda -arch=sm_90"}, "unsupported_target", "'none'"),
        ({"target": "cuda -arch=sm_90", "tuner": Tuner.AUTOTVM}, "unsupported_target", "relay"),
    ],
)
def test_what_cannot_be_run_where_it_is_asked_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, request_: dict[str, Any], code: str, word: str
) -> None:
    monkeypatch.setattr(hardware, "accelerators", lambda threads=None: ())
    bench.script.hellos = BOTH
    job_id = run(bench, **request_)
    failure = bench.failure(job_id)
    assert (failure.code, bench.get(job_id).stage) == (code, Stage.IMPORT)
    assert word in f"{failure.message} {failure.hint}"


@pytest.mark.parametrize("target", [ARM, "cuda -arch=sm_90"])
def test_without_a_runner_nothing_is_measured_or_claimed(bench: Bench, target: str) -> None:
    bench.script.hellos = BOTH
    found = bench.artifact(run(bench, target=target, runner=RunnerKind.NONE))
    assert not found.verified
    assert (found.report.timings, found.report.verifications) == ({}, {})
    assert (found.report.published, found.report.speedup_over_reference) == (Variant.UNTUNED, None)
    assert "neither results nor speed are verified" in found.report.summary
    assert not [method for method, _ in bench.script.requests if method in ("tune", "run", "time")]


def test_without_a_runner_the_records_of_a_board_are_used(bench: Bench) -> None:
    board = {"target": ARM, "tuner": Tuner.AUTOTVM}
    run(bench, **board, threads=4, runner=RunnerKind.RPC, rpc=BOARD)
    found = bench.artifact(run(bench, **board, runner=RunnerKind.NONE, device="rpc/rasp4b/t4"))
    assert (found.verified, found.report.published, found.device_key) == (False, Variant.TUNED, "rpc/rasp4b/t4")
    assert found.target == f"{ARM} -num-cores=4"
    assert "with 2 records" in found.report.summary
    without = bench.artifact(run(bench, **board, threads=4, runner=RunnerKind.NONE))
    assert (without.report.published, without.device_key) == (Variant.UNTUNED, "none/t4")


def test_cuda_runs_on_the_gpu_that_has_the_architecture(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (
        Device(key="cuda/nvidia-t4/sm_75", name="NVIDIA T4", threads=2),
        Device(key="cuda/nvidia-h200/sm_90", name="NVIDIA H200", threads=2),
    )
    monkeypatch.setattr(hardware, "accelerators", lambda threads=None: gpus)
    bench.script.hellos = BOTH
    job_id = run(bench, target="cuda -arch=sm_90")
    placement = bench.get(job_id).placement
    assert placement is not None
    assert placement.device.key == "cuda/nvidia-h200/sm_90"
    found = bench.report(job_id)
    assert found.speedup_over_reference is None
    assert found.engines[Variant.TUNED].startswith("relax/")


def test_failed_tasks_are_in_the_report(bench: Bench) -> None:
    bench.script.failing = frozenset({'["dense"]'})
    (failed,) = bench.report(run(bench, trials=32)).failed_tasks
    assert failed.name == "dense.x86"
    assert set(failed.failures) == {"build_error"}
    assert failed.hint


def test_engine_events_reach_nobody_else(bench: Bench) -> None:
    bench.script.lost = "10.0.0.7:9090"
    job_id = run(bench)
    with bench.database.reading() as session:
        assert workers.quarantined(session, clock.now()) == []
    assert bench.events(job_id, EventKind.NOTE) == []
