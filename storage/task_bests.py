"""The best of a job's tuning tasks as it was for that job: what others found afterwards is left out."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage.tables import JobRow, RecordRow, TuningTaskRow


def of_job(session: Session, job_id: str) -> dict[str, float]:
    """Seconds by workload key, of tasks that have a valid record: the job's own, or one from before its last.

    A job that measured nothing has the best there is now. Of each workload an index is read from the fastest record on,
    down to the first that is old enough.
    """
    last = session.scalar(select(func.max(RecordRow.id)).where(RecordRow.job_id == job_id))
    best = select(RecordRow.latency).where(
        RecordRow.workload_digest == TuningTaskRow.workload_digest,
        RecordRow.target == JobRow.target,
        RecordRow.device_key == JobRow.device_key,
        RecordRow.toolchain == JobRow.toolchain,
        RecordRow.latency.is_not(None),
    )
    if last is not None:
        best = best.where(RecordRow.id <= last)
    fastest = best.order_by(RecordRow.latency).limit(1).correlate(TuningTaskRow, JobRow).scalar_subquery()
    query = (
        select(TuningTaskRow.workload_key, fastest)
        .join(JobRow, JobRow.id == TuningTaskRow.job_id)
        .where(TuningTaskRow.job_id == job_id)
    )
    return {key: latency for key, latency in session.execute(query) if latency is not None}
