"""Which jobs a worker claims, and that it leaves those that are not for it to others."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from domain import errors
from domain.jobs import JobState, Tuner
from domain.targets import Device
from storage import shared_rounds, workers
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO, RELAX
from tuner.host import hardware
from worker import clock
from worker import engines as worker_engines
from worker.runtime import Runtime

GPU = Device(key="cuda/nvidia-h200/sm_90", name="NVIDIA H200", threads=2)
ENGINES: dict[str, Any] = {"onnx": HELLO, "relay": {**HELLO, "foreign_cpus": ["znver5"]}, "relax": RELAX}


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "accelerators", lambda: ())


def come(bench: Bench, monkeypatch: pytest.MonkeyPatch, *engines: str, **options: Any) -> Runtime:
    """A worker with the engines that has told the fleet of itself."""
    monkeypatch.setattr(worker_engines, "ask_hello", lambda name, *_: ENGINES[name] if name in engines else None)
    runtime = bench.runtime(**options)
    announced = runtime.announce()
    with bench.database.transaction() as session:
        workers.beat(session, replace(announced, last_seen_at=clock.now()))
    return runtime


def claimed(runtime: Runtime) -> str | None:
    job = runtime._claim()
    return job.id if job else None


@pytest.mark.parametrize(
    ("gpus", "takes", "gets_gpus"),
    [((), "auto", False), ((GPU,), "auto", True), ((GPU,), "cpu", False), ((GPU,), "cuda", True)],
)
def test_a_worker_with_a_gpu_takes_cuda_jobs_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, gpus: tuple[Device, ...], takes: str, gets_gpus: bool
) -> None:
    monkeypatch.setattr(hardware, "accelerators", lambda: gpus)
    other, cuda = bench.job(), bench.job(target="cuda -arch=sm_90")
    worker = come(bench, monkeypatch, *ENGINES, takes=takes)
    assert [claimed(worker), claimed(worker)] == [cuda if gets_gpus else other, None]


def test_a_worker_that_is_to_take_cuda_jobs_without_a_gpu_does_not_start(bench: Bench) -> None:
    with pytest.raises(errors.ConfigurationError, match="no visible NVIDIA GPU"):
        bench.runtime(takes="cuda").announce()


def test_a_worker_announces_what_it_has(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "accelerators", lambda: (GPU,))
    runtime = come(bench, monkeypatch, *ENGINES, rpc_trackers="boards:9190, lab:9190")
    with bench.database.reading() as session:
        (announced,) = workers.known(session)
    assert announced.accelerators == (GPU,)
    assert [toolchain.engine for toolchain in announced.toolchains] == ["relay", "relax"]
    assert announced.native_target.text == "llvm -mcpu=znver3"
    assert announced.foreign_cpus == ("znver5",)
    assert announced.trackers == ("boards:9190", "lab:9190")
    assert announced == replace(runtime.announce(), last_seen_at=announced.last_seen_at)


def test_without_the_reference_engine_a_worker_serves_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = come(bench, monkeypatch, "relay", "relax")
    bench.job()
    assert runtime.announce().toolchains == ()
    assert claimed(runtime) is None


@pytest.mark.parametrize(
    ("engine", "tuner"), [("relay", Tuner.METASCHEDULE), ("relax", Tuner.AUTOTVM), ("relax", Tuner.ANSOR)]
)
def test_a_job_is_never_taken_without_its_engine(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, engine: str, tuner: Tuner
) -> None:
    job_id = bench.job(tuner=tuner)
    come(bench, monkeypatch, "onnx", engine).look()
    job = bench.get(job_id)
    assert (job.state, job.attempts, job.lease) == (JobState.QUEUED, 0, None)


def test_a_job_is_left_for_the_worker_that_can_do_it_and_holds_up_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, here = bench.job(target="llvm -mcpu=znver5"), bench.job()
    unable = come(bench, monkeypatch, *ENGINES)
    assert [claimed(unable), claimed(unable)] == [here, None]
    monkeypatch.setitem(ENGINES, "relay", HELLO)
    able = come(bench, monkeypatch, *ENGINES)
    assert claimed(able) == elsewhere


def test_jobs_of_all_tuners_are_claimed_in_the_order_in_which_they_came(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [bench.job(tuner=tuner) for tuner in (*Tuner, *reversed(Tuner))]
    worker = come(bench, monkeypatch, *ENGINES)
    assert [claimed(worker) for _ in asked] == asked


def test_a_worker_does_all_that_waits_and_then_helps(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    helped: list[str] = []
    worker = bench.runtime()
    monkeypatch.setattr(worker, "help_job", lambda job_id: helped.append(job_id) or 0)
    monkeypatch.setattr(shared_rounds, "offering", lambda *_, **__: ["j-1", "j-2"])
    asked = [bench.job(content=b"one"), bench.job(content=b"two")]
    worker.look()
    assert [bench.get(job_id).state for job_id in asked] == [JobState.SUCCEEDED] * 2
    assert helped == ["j-1", "j-2"]


def test_a_look_waits_while_the_worker_is_at_work(bench: Bench) -> None:
    worker, job_id = bench.runtime(), bench.job()
    bench.script.on_trial = lambda _: time.sleep(0.02)
    looks = [threading.Thread(target=worker.look) for _ in range(3)]
    for each in looks:
        each.start()
    for each in looks:
        each.join(60)
    assert bench.get(job_id).state is JobState.SUCCEEDED
    assert bench.get(job_id).attempts == 1
