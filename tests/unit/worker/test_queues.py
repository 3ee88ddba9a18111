"""Which jobs a worker takes, and what becomes of those that are not for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain import dispatch, errors
from domain.jobs import Job, JobState, Tuner
from domain.targets import Device
from storage import jobs, workers
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO, RELAX
from tuner import hostinfo
from worker import clock, hellos, reaper
from worker.runtime import Runtime

GPU = Device(key="cuda/nvidia-h200/sm_90", name="NVIDIA H200", threads=2)
ENGINES: dict[str, Any] = {"reference": HELLO, "relay": {**HELLO, "foreign_cpus": ["znver5"]}, "relax": RELAX}


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostinfo, "accelerators", lambda: ())


def come(bench: Bench, monkeypatch: pytest.MonkeyPatch, *engines: str, **options: Any) -> Runtime:
    """A worker with the engines that has told the fleet of itself."""
    monkeypatch.setattr(hellos, "ask", lambda name, *_: ENGINES[name] if name in engines else None)
    runtime = bench.runtime(**options)
    announced = runtime.announce()
    with bench.database.transaction() as session:
        workers.beat(session, replace(announced, last_seen_at=clock.now()))
    return runtime


def sent(runtime: Runtime) -> list[tuple[str, str]]:
    """Job and queue of each message of one round of the reaper."""
    found: list[tuple[str, str]] = []

    def publish(job: Job, living: Any) -> None:
        found.append((job.id, dispatch.message(job, living)["queue"]))

    reaper.reap(runtime, publish)
    return found


@pytest.mark.parametrize(
    ("gpus", "takes", "queue"),
    [
        ((), "auto", dispatch.QUEUE),
        ((GPU,), "auto", dispatch.CUDA_QUEUE),
        ((GPU,), "cpu", dispatch.QUEUE),
        ((GPU,), "cuda", dispatch.CUDA_QUEUE),
    ],
)
def test_a_worker_with_a_gpu_takes_cuda_jobs_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, gpus: tuple[Device, ...], takes: str, queue: str
) -> None:
    monkeypatch.setattr(hostinfo, "accelerators", lambda: gpus)
    assert bench.runtime(takes=takes).queues == [queue]
    assert come(bench, monkeypatch, *ENGINES, takes=takes).queues[0] == queue


def test_a_worker_that_is_to_take_cuda_jobs_without_a_gpu_does_not_start(bench: Bench) -> None:
    with pytest.raises(errors.ConfigurationError, match="no NVIDIA GPU"):
        bench.runtime(takes="cuda").announce()


def test_a_worker_announces_what_it_has(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostinfo, "accelerators", lambda: (GPU,))
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
    assert runtime.announce().toolchains == ()
    assert runtime.queues == [dispatch.own_queue(runtime.announce())]


@pytest.mark.parametrize(
    ("engine", "tuner"), [("relay", Tuner.METASCHEDULE), ("relax", Tuner.AUTOTVM), ("relax", Tuner.ANSOR)]
)
def test_a_job_is_never_taken_without_its_engine(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, engine: str, tuner: Tuner
) -> None:
    job_id = bench.job(tuner=tuner)
    come(bench, monkeypatch, "reference", engine).run_job(job_id)
    job = bench.get(job_id)
    assert (job.state, job.attempts, job.lease) == (JobState.QUEUED, 0, None)


def test_a_job_for_a_gpu_is_never_taken_without_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = bench.job(target="cuda -arch=sm_90")
    come(bench, monkeypatch, *ENGINES).run_job(job_id)
    assert (bench.get(job_id).state, bench.get(job_id).attempts) == (JobState.QUEUED, 0)


def test_a_job_that_another_worker_can_do_goes_to_it_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = bench.job(target="llvm -mcpu=znver5")
    with bench.database.transaction() as session:
        jobs.mark_published(session, job_id, now=clock.now())
    unable = come(bench, monkeypatch, *ENGINES)
    assert unable._claim(job_id) is None
    assert sent(unable) == [], "nobody can: no message goes round and round"
    monkeypatch.setitem(ENGINES, "relay", HELLO)
    able = come(bench, monkeypatch, *ENGINES)
    assert unable._claim(job_id) is None
    assert sent(unable) == [(job_id, dispatch.own_queue(able.announce()))]
    assert able._claim(job_id)


def test_a_worker_that_comes_calls_for_what_waited_for_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, others = bench.job(target="llvm -mcpu=znver5"), bench.job()
    with bench.database.transaction() as session:
        for job_id in (waiting, others):
            jobs.mark_published(session, job_id, now=clock.now())
    unable = come(bench, monkeypatch, *ENGINES)
    assert reaper.call_for_work(unable) == [others], "it is the first that can"
    assert [job_id for job_id, _ in sent(unable)] == [others]
    monkeypatch.setitem(ENGINES, "relay", HELLO)
    able = come(bench, monkeypatch, *ENGINES)
    assert reaper.call_for_work(able) == [waiting]
    assert sent(unable) == [(waiting, dispatch.own_queue(able.announce()))]


def test_a_worker_alone_gets_everything_it_serves_from_shared_queues(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [bench.job(), bench.job(tuner=Tuner.AUTOTVM), bench.job(tuner=Tuner.METASCHEDULE)]
    worker = come(bench, monkeypatch, *ENGINES, republish_seconds=0.001)
    queues = dict(sent(worker))
    assert set(queues) == set(asked)
    assert set(queues.values()) <= set(worker.queues)
    assert all(worker._claim(job_id) for job_id in asked)
