"""What is mutated, and the tests of all tiers that are to notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Area:
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    """Under ``tests/``, the likeliest to notice first."""


AREAS = {
    "claims": Area(
        modules=("storage/jobs.py", "storage/queue.py"),
        tests=(
            "unit/storage/test_queue.py",
            "unit/storage/test_jobs.py",
            "unit/storage/test_attempts.py",
            "unit/storage/test_quotas.py",
            "integration/worker/test_claiming.py",
            "integration/worker/test_leases.py",
            "integration/api/test_jobs.py",
        ),
    ),
    "leases": Area(
        modules=("worker/leases.py",),
        tests=(
            "integration/worker/test_leases.py",
            "integration/worker/test_recovery.py",
            "integration/worker/test_sharing_losses.py",
            "system/worker/test_shutdown.py",
        ),
    ),
    "quotas": Area(
        modules=("storage/quotas.py",),
        tests=("unit/storage/test_quotas.py", "unit/storage/test_queue.py", "integration/api/test_quotas.py"),
    ),
    "scopes": Area(
        modules=("api/middleware/credentials.py", "domain/tokens.py"),
        tests=(
            "integration/api/test_access.py",
            "integration/api/test_login.py",
            "integration/api/test_tokens.py",
            "integration/api/test_owners.py",
            "integration/api/test_http.py",
            "integration/api/test_watching.py",
        ),
    ),
    "timing": Area(
        modules=("tuner/results/timing.py",),
        tests=(
            "unit/tuner/test_timing.py",
            "unit/tuner/test_benchmark.py",
            "contract/tuner/engines/test_host_side.py",
        ),
    ),
    "verification": Area(
        modules=(
            "tuner/results/verification.py",
            "tuner/engines/onnx/accuracy/comparing.py",
            "tuner/engines/onnx/accuracy/selections.py",
            "tuner/engines/onnx/accuracy/rounding.py",
        ),
        tests=(
            "unit/tuner/test_verification.py",
            "integration/worker/test_precisions.py",
            "contract/tuner/engines/onnx/test_arrays.py",
            "contract/tuner/engines/onnx/test_rounding.py",
            "contract/tuner/engines/test_host_side.py",
        ),
    ),
}
