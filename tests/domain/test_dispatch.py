from __future__ import annotations

import pytest

from domain import dispatch
from domain.jobs import Budget, JobRequest, RunnerKind


@pytest.mark.parametrize(
    ("target", "runner", "queue"),
    [
        ("native", RunnerKind.LOCAL, dispatch.QUEUE),
        ("llvm -mcpu=znver3", RunnerKind.LOCAL, dispatch.QUEUE),
        ("cuda -arch=sm_90", RunnerKind.LOCAL, dispatch.CUDA_QUEUE),
        ("cuda -arch=sm_90", RunnerKind.RPC, dispatch.QUEUE),
        ("cuda -arch=sm_90", RunnerKind.NONE, dispatch.QUEUE),
    ],
)
def test_only_what_measures_on_a_gpu_waits_for_one(target: str, runner: RunnerKind, queue: str) -> None:
    request = JobRequest(model_digest="d", budget=Budget(trials=1), target=target, runner=runner)
    assert dispatch.queue_of(request) == queue
