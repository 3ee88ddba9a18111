"""In which queue a job waits, and which queues a worker reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain import dispatch
from domain.jobs import JobRequest, RunnerKind, Tuner
from domain.workers import Worker
from tests.unit.domain.test_capabilities import ARM, GPU, RELAX, RELAY, WORKER, request, rpc

RELAY_QUEUE, RELAX_QUEUE = "tunesmith.relay", "tunesmith.relax"


@pytest.mark.parametrize(
    ("asked", "queue"),
    [
        (request(), dispatch.QUEUE),
        (request(target="llvm -mcpu=znver3"), dispatch.QUEUE),
        (request(tuner=Tuner.AUTOTVM), RELAY_QUEUE),
        (request(tuner=Tuner.METASCHEDULE), RELAX_QUEUE),
        (request(target="cuda -arch=sm_90"), dispatch.CUDA_QUEUE),
        (request(target="cuda -arch=sm_90", runner=RunnerKind.RPC), RELAX_QUEUE),
        (request(target="cuda -arch=sm_90", runner=RunnerKind.NONE), RELAX_QUEUE),
    ],
)
def test_a_queue_is_for_a_kind_of_device_and_engines(asked: JobRequest, queue: str) -> None:
    assert dispatch.queue_of(asked) == queue
    assert dispatch.queue_of(asked, [WORKER]) == queue


def test_a_worker_reads_what_it_serves() -> None:
    both, relax, gpu = WORKER, replace(WORKER, toolchains=(RELAX,)), replace(WORKER, accelerators=(GPU,))
    assert dispatch.queues_of(both)[:-1] == [dispatch.QUEUE, RELAY_QUEUE, RELAX_QUEUE]
    assert dispatch.queues_of(relax)[:-1] == [dispatch.QUEUE, RELAX_QUEUE]
    assert dispatch.queues_of(gpu)[:-1] == [dispatch.CUDA_QUEUE]
    assert dispatch.queues_of(replace(WORKER, toolchains=()))[:-1] == []
    own = [dispatch.queues_of(worker)[-1] for worker in (both, relax, gpu)]
    assert len(set(own)) == 3
    assert dispatch.own_queue(replace(both, id="another:1:1", toolchains=(RELAX, RELAY))) == own[0]


@pytest.mark.parametrize(
    ("asked", "able"),
    [
        (request(target=ARM), replace(WORKER, device=replace(WORKER.device, key="aarch64/arm/neon/t4"))),
        (request(target="llvm -mcpu=znver5"), replace(WORKER, foreign_cpus=())),
        (rpc(), replace(WORKER, trackers=("boards:9190",))),
    ],
)
def test_what_only_some_can_serve_goes_to_them(asked: JobRequest, able: Worker) -> None:
    unable = replace(WORKER, id="host:2:1", trackers=("lab:9190",))
    assert dispatch.queue_of(asked, [unable, able]) == dispatch.own_queue(able)
    assert dispatch.queue_of(asked, [able]) == dispatch.queue_of(asked)
    assert dispatch.queue_of(asked, [unable]) == dispatch.queue_of(asked), "whoever comes reads it"


def test_a_job_for_one_kind_of_gpu_goes_to_those_that_have_it() -> None:
    old = replace(WORKER, accelerators=(replace(GPU, key="cuda/a100/sm_80"),))
    new = replace(WORKER, accelerators=(GPU,))
    assert dispatch.queue_of(request(target="cuda -arch=sm_80"), [old, new, WORKER]) == dispatch.own_queue(old)


def test_of_those_that_can_an_idle_one_gets_it() -> None:
    busy = replace(WORKER, foreign_cpus=("skylake-avx512",), current_job="j-1")
    idle = replace(WORKER, foreign_cpus=())
    asked = request(target="llvm -mcpu=znver5")
    assert {dispatch.queue_of(asked, [WORKER, busy, idle]) for _ in range(20)} == {dispatch.own_queue(idle)}
