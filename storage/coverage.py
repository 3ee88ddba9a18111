"""What is known of workloads already: the same for a plan and for the job that follows."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from domain.tuning_tasks import Coverage
from storage import records, tuning_tasks


def find(
    session: Session,
    workload_keys: Sequence[str],
    *,
    target: str,
    device_key: str,
    toolchain: str,
    excluding_job: str | None = None,
) -> dict[str, Coverage]:
    """Of every key; identities as in ``RecordKey``. Trials of the excluded job count against its own plan."""
    identity = {"target": target, "device_key": device_key, "toolchain": toolchain}
    best = records.best_of_many(session, workload_keys, **identity)
    counts = records.counts_of_many(session, workload_keys, **identity, excluding_job=excluding_job)
    efforts = tuning_tasks.efforts(session, workload_keys, **identity, excluding_job=excluding_job)
    return {
        key: Coverage(
            trials=counts.get(key, 0),
            best_latency=best[key].latency if key in best else None,
            effort=efforts.get(key),
        )
        for key in workload_keys
    }
