"""What a job needs, and what a worker that lacks it never gets."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from domain import capabilities
from domain.jobs import Budget, JobRequest, Precision, RpcOptions, RunnerKind, Tuner
from domain.targets import Device, Target, Toolchain
from domain.workers import Worker

RELAY = Toolchain(engine="relay", tvm="0.19.0", llvm="22")
RELAX = Toolchain(engine="relax", tvm="0.27.0", llvm="22")
GPU = Device(key="cuda/nvidia-h200/sm_90", name="NVIDIA H200", threads=2)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = Worker(
    id="host:1:1",
    hostname="host",
    pid=1,
    device=Device(key="x86_64/amd-25-1-epyc/avx2+fma/t4", name="EPYC", threads=4),
    native_target=Target(text="llvm -mcpu=znver3", threads=4),
    toolchains=(RELAY, RELAX),
    foreign_cpus=("skylake-avx512", "znver5"),
    current_job=None,
    started_at=NOW,
    last_seen_at=NOW,
)
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"


def request(**asked: Any) -> JobRequest:
    return JobRequest(model_digest="0" * 64, budget=Budget(trials=1), **asked)


def rpc(target: str = ARM) -> JobRequest:
    return request(target=target, runner=RunnerKind.RPC, rpc=RpcOptions(tracker="boards:9190", key="pi"), threads=4)


@pytest.mark.parametrize(
    ("asked", "changes", "lacked"),
    [
        (request(), {}, None),
        (request(tuner=Tuner.METASCHEDULE), {"toolchains": (RELAY,)}, "engine"),
        (request(tuner=Tuner.AUTOTVM), {"toolchains": (RELAX,)}, "engine"),
        (request(tuner=Tuner.ANSOR), {"toolchains": (RELAX,)}, "engine"),
        (request(), {"toolchains": (RELAX,)}, None),
        (request(), {"toolchains": ()}, "engine"),
        (request(precision=Precision.INT8), {"toolchains": (RELAX,)}, None),
        (request(precision=Precision.INT8), {"toolchains": (RELAY,)}, "engine"),
        (request(precision=Precision.AUTO), {"toolchains": (RELAX,)}, None),
        (request(target="cuda -arch=sm_90"), {}, "device"),
        (request(target="cuda -arch=sm_90"), {"accelerators": (GPU,)}, None),
        (request(target="cuda -arch=sm_90a"), {"accelerators": (GPU,)}, None),
        (request(target="cuda -arch=sm_80"), {"accelerators": (GPU,)}, "device"),
        (request(target="cuda -arch=sm_90"), {"accelerators": (GPU,), "toolchains": (RELAY,)}, "engine"),
        (request(target="cuda -arch=sm_90", runner=RunnerKind.NONE), {"toolchains": (RELAY,)}, "engine"),
        (request(target="cuda -arch=sm_90", runner=RunnerKind.NONE), {}, None),
        (request(), {"accelerators": (GPU,)}, "device"),
        (request(target="llvm -mcpu=haswell"), {}, None),
        (request(target="llvm -mcpu=znver5"), {}, "cpu"),
        (request(target="llvm -mcpu=znver5", runner=RunnerKind.NONE), {}, None),
        (request(target=ARM), {}, "machine"),
        (request(target=ARM, runner=RunnerKind.NONE), {}, None),
        (request(target=ARM.replace("aarch64", "amd64").replace("cortex-a72", "znver3")), {}, None),
        (rpc(), {}, None),
        (rpc(), {"trackers": ("lab:9190", "boards:9190")}, None),
        (rpc(), {"trackers": ("lab:9190",)}, "tracker"),
        (rpc("cuda -arch=sm_87"), {"toolchains": (RELAY,)}, "engine"),
        (request(), {"trackers": ("lab:9190",)}, None),
    ],
)
def test_a_worker_serves_what_it_has_everything_for(
    asked: JobRequest, changes: dict[str, Any], lacked: str | None
) -> None:
    worker = replace(WORKER, **changes)
    assert capabilities.lacking(asked, worker) == lacked
    found = capabilities.missing(asked, [worker])
    assert (found.details["missing"] if found else None) == lacked


@pytest.mark.parametrize(
    ("asked", "workers", "told"),
    [
        (request(), [], "a worker; no worker is alive"),
        (request(), [replace(WORKER, accelerators=(GPU,))], "accept only CUDA jobs"),
        (
            request(target="cuda -arch=sm_80"),
            [replace(WORKER, accelerators=(GPU,))],
            "the live workers have NVIDIA H200",
        ),
        (request(target=ARM), [WORKER], "the live workers are x86_64"),
        (request(target="llvm -mcpu=znver5"), [WORKER], "the live workers have llvm -mcpu=znver3"),
        (
            request(tuner=Tuner.AUTOTVM),
            [replace(WORKER, toolchains=(RELAX,))],
            "the relay engine: workers for this target",
        ),
        (
            rpc(),
            [replace(WORKER, trackers=("lab:9190",))],
            "the tracker boards:9190: the live workers may use lab:9190",
        ),
    ],
)
def test_what_nobody_has_is_said(asked: JobRequest, workers: list[Worker], told: str) -> None:
    found = capabilities.missing(asked, workers)
    assert found
    assert found.code == "no_worker"
    assert told in found.message


def test_needs_are_met_together_by_one_worker() -> None:
    gpu_without_relax = replace(WORKER, accelerators=(GPU,), toolchains=(RELAY,))
    found = capabilities.missing(request(target="cuda -arch=sm_90"), [WORKER, gpu_without_relax])
    assert found
    assert found.details == {"missing": "engine"}
    assert "starts the worker again" in str(found.hint)


@pytest.mark.parametrize("text", ["lab", "lab:", ":9190", "lab:9190,other"])
def test_a_tracker_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        capabilities.checked_trackers(text)


def test_no_setting_means_any_tracker() -> None:
    assert capabilities.trackers_of(capabilities.checked_trackers("")) is None
    assert capabilities.trackers_of(capabilities.checked_trackers("a:1, [::1]:2")) == ("a:1", "[::1]:2")
