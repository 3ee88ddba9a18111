"""What is compared: each side a job with what it published, or an artifact whose job may be somebody else's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqlalchemy.orm import Session

from api.dashboard import formats
from domain.artifacts import Artifact, Report, Timing, Variant
from domain.jobs import Job
from domain.tokens import Principal
from domain.tuning_tasks import TuningTask
from storage import artifacts, jobs, owners, summaries, task_bests, tuning_tasks
from storage.summaries import ModelName

_LEFT_OUT = ("model_digest", "labels", "group", "priority")
"""Of a request: what decides nothing of how a build turns out."""


@dataclass(frozen=True, kw_only=True)
class Side:
    name: str
    """How the address names it: ``job`` or ``artifact``."""
    id: str
    model: ModelName
    job: Job | None
    artifact: Artifact | None
    tasks: list[TuningTask] = field(default_factory=list)
    """With the best that the job itself could use, not what others found since."""

    @property
    def report(self) -> Report | None:
        return self.artifact.report if self.artifact else None

    @property
    def published(self) -> Timing | None:
        return self.timing(self.report.published) if self.report else None

    def timing(self, variant: Variant) -> Timing | None:
        return self.report.timings.get(variant) if self.report else None

    @property
    def device_key(self) -> str | None:
        if self.artifact:
            return self.artifact.device_key
        return self.job.placement.device.key if self.job and self.job.placement else None

    @property
    def toolchain(self) -> str | None:
        if self.artifact:
            return self.artifact.toolchain
        return self.job.placement.toolchain.identity if self.job and self.job.placement else None

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        if self.artifact:
            return self.artifact.input_shapes
        return self.job.request.input_shapes if self.job else {}

    @property
    def options(self) -> dict[str, str]:
        """By name, as the API has them; of an artifact alone what it tells itself."""
        if self.job:
            request = {name: value for name, value in asdict(self.job.request).items() if name not in _LEFT_OUT}
            return dict(_flat(request))
        assert self.artifact is not None  # noqa: S101 - a side has one or the other
        told = {"target": self.artifact.target, "precision": self.artifact.precision}
        return dict(_flat(told | {"input_shapes": dict(self.artifact.input_shapes)}))


def of_job(session: Session, job_id: str, principal: Principal) -> Side:
    """Raises JobNotFound."""
    job = owners.job(session, job_id, principal)
    return _side(session, "job", job_id, job=job, artifact=artifacts.of_job(session, job_id))


def of_artifact(session: Session, artifact_id: str, principal: Principal) -> Side:
    """Raises ArtifactNotFound."""
    artifact = owners.artifact(session, artifact_id, principal)
    own = owners.jobs_of(session, [artifact.job_id], principal)
    job = jobs.get(session, artifact.job_id) if own else None
    return _side(session, "artifact", artifact_id, job=job, artifact=artifact)


def _side(session: Session, name: str, side_id: str, *, job: Job | None, artifact: Artifact | None) -> Side:
    digest = job.request.model_digest if job else artifact.model_digest if artifact else ""
    return Side(
        name=name,
        id=side_id,
        model=summaries.model_names(session, [digest])[digest],
        job=job,
        artifact=artifact,
        tasks=_tasks(session, job.id) if job else [],
    )


def _tasks(session: Session, job_id: str) -> list[TuningTask]:
    bests = task_bests.of_job(session, job_id)
    found = tuning_tasks.of_job(session, job_id)
    return [replace(task, best_latency=bests.get(task.extracted.workload_key)) for task in found]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", _text(value)


def _text(value: object) -> str:
    if isinstance(value, tuple | list):
        return formats.shape(tuple(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
