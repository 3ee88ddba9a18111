"""Which jobs a worker takes."""

from __future__ import annotations

import pytest

from domain import dispatch
from domain.targets import Device
from tests.worker.conftest import Bench
from tests.worker.scripted import HELLO, RELAX
from tuner import hostinfo
from worker import hellos

GPU = Device(key="cuda/nvidia-h200/sm_90", name="NVIDIA H200", threads=2)


@pytest.mark.parametrize(
    ("gpus", "takes", "queue"),
    [
        ((), "auto", dispatch.QUEUE),
        ((GPU,), "auto", dispatch.CUDA_QUEUE),
        ((GPU,), "cpu", dispatch.QUEUE),
        ((), "cuda", dispatch.CUDA_QUEUE),
    ],
)
def test_a_worker_with_a_gpu_takes_cuda_jobs_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, gpus: tuple[Device, ...], takes: str, queue: str
) -> None:
    monkeypatch.setattr(hostinfo, "accelerators", lambda: gpus)
    assert bench.runtime(takes=takes).queue == queue


def test_a_worker_announces_its_gpus_and_every_engine(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostinfo, "accelerators", lambda: (GPU,))
    monkeypatch.setattr(hellos, "ask", lambda name, *_: {"relay": HELLO, "relax": RELAX}[name])
    runtime = bench.runtime()
    runtime.id = "host:12:1"
    described = runtime.describe()
    assert described.accelerators == (GPU,)
    assert [toolchain.engine for toolchain in described.toolchains] == ["relay", "relax"]
    assert described.native_target.text == "llvm -mcpu=znver3"
