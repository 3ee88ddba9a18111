"""What is mutated, and which tests are tried first on each mutant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Area:
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    """Files and folders of all tiers; a mutant that lives through them meets all other tests as well."""


AREAS = {
    "claims": Area(
        modules=("storage/jobs.py",),
        tests=("tests/unit/storage", "tests/unit/worker", "tests/contract/storage/test_jobs.py"),
    ),
    "leases": Area(
        modules=("worker/leases.py",),
        tests=("tests/unit/worker", "tests/contract/worker", "tests/system/worker"),
    ),
    "quotas": Area(
        modules=("storage/quotas.py",),
        tests=("tests/unit/storage", "tests/unit/api/test_quotas.py", "tests/unit/api/test_tokens.py"),
    ),
    "scopes": Area(
        modules=("api/transport/credentials.py", "domain/tokens.py"),
        tests=("tests/unit/api",),
    ),
    "timing": Area(
        modules=("tuner/timing.py",),
        tests=("tests/unit/tuner", "tests/contract/tuner/engines/test_host_side.py"),
    ),
    "verification": Area(
        modules=("tuner/verification.py", "tuner/engines/reference/comparing.py"),
        tests=(
            "tests/unit/tuner",
            "tests/unit/worker/test_precisions.py",
            "tests/contract/tuner/engines/reference",
            "tests/contract/tuner/engines/test_host_side.py",
        ),
    ),
}
