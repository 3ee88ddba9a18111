"""Names, job counts, fastest artifacts and gains, which listings show with models and jobs."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from domain.artifacts import Artifact
from domain.digests import ModelDigest
from storage import artifacts
from storage.tables import ArtifactRow, JobRow, ModelRow

_MOST_ARTIFACTS = 5000
"""Only this many of a model's newest artifacts are considered."""


@dataclass(frozen=True, kw_only=True)
class ModelOverview:
    jobs: int = 0
    fastest: Artifact | None = None
    """The fastest verified one, of any target, device, precision and shapes."""


def of_models(
    session: Session, digests: Sequence[ModelDigest], *, owner: str | None = None
) -> dict[ModelDigest, ModelOverview]:
    """Return an overview by digest; ``owner`` limits the job counts to an owner."""
    counted = select(JobRow.model_digest, func.count()).where(
        JobRow.model_digest.in_(digests), JobRow.part_of.is_(None)
    )
    if owner is not None:
        counted = counted.where(JobRow.owner == owner)
    jobs = dict(session.execute(counted.group_by(JobRow.model_digest)).all())
    rank = func.row_number().over(
        partition_by=ArtifactRow.model_digest, order_by=(ArtifactRow.published_median, ArtifactRow.created_at)
    )
    ranked = select(ArtifactRow.id, rank.label("rank")).where(ArtifactRow.model_digest.in_(digests), *artifacts.USABLE)
    first = ranked.subquery()
    fastest = {one.model_digest: one for one in _by_ids(session, select(first.c.id).where(first.c.rank == 1))}
    return {digest: ModelOverview(jobs=jobs.get(digest, 0), fastest=fastest.get(digest)) for digest in digests}


def fastest(session: Session, digest: ModelDigest, *, most: int = 100) -> list[Artifact]:
    """Return a model's fastest verified artifact of each target, device, precision, input shapes and toolchain.

    The fastest come first, of equal ones the oldest; at most ``most``.
    """
    newest = (
        select(ArtifactRow.id)
        .where(ArtifactRow.model_digest == digest, *artifacts.USABLE)
        .order_by(ArtifactRow.created_at.desc())
        .limit(_MOST_ARTIFACTS)
    )
    query = (
        select(
            ArtifactRow.id,
            ArtifactRow.target,
            ArtifactRow.device_key,
            ArtifactRow.precision,
            ArtifactRow.toolchain,
            ArtifactRow.input_shapes,
            ArtifactRow.sizes,
        )
        .where(ArtifactRow.id.in_(newest))
        .order_by(ArtifactRow.published_median, ArtifactRow.created_at)
    )
    found: dict[tuple[str, ...], str] = {}
    for artifact_id, *identity, shapes, sizes in session.execute(query):
        entries = [size["input_shapes"] for size in sizes or []]
        found.setdefault((*identity, json.dumps([shapes, *entries], sort_keys=True)), artifact_id)
    wanted = list(found.values())[:most]
    by_id = {one.id: one for one in _by_ids(session, wanted)}
    return [by_id[artifact_id] for artifact_id in wanted]


def _by_ids(session: Session, ids: Any) -> list[Artifact]:
    """Query by ids, which may be a sequence or a subquery."""
    return [artifacts.from_row(row) for row in session.scalars(select(ArtifactRow).where(ArtifactRow.id.in_(ids)))]


@dataclass(frozen=True, kw_only=True)
class ModelName:
    id: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Speedups of a published artifact."""

    published: str
    """The published variant."""
    median: float | None
    """Median seconds of one run; None if it was never run."""
    over_untuned: float
    over_reference: float | None


def model_names(session: Session, digests: Collection[ModelDigest]) -> dict[ModelDigest, ModelName]:
    """Return names by digest; unknown digests are omitted."""
    query = select(ModelRow.digest, ModelRow.id, ModelRow.name).where(ModelRow.digest.in_(set(digests)))
    return {digest: ModelName(id=model_id, name=name) for digest, model_id, name in session.execute(query)}


def gains(session: Session, artifact_ids: Collection[str]) -> dict[str, Gain]:
    """Return gains by artifact id. The database extracts four numbers from each report, which contains all samples."""
    report = ArtifactRow.report
    query = select(
        ArtifactRow.id,
        report["published"].as_string(),
        ArtifactRow.published_median,
        report["speedup_over_untuned"].as_float(),
        report["speedup_over_reference"].as_float(),
    ).where(ArtifactRow.id.in_(set(artifact_ids)))
    return {
        artifact_id: Gain(published=published, median=median, over_untuned=untuned, over_reference=reference)
        for artifact_id, published, median, untuned, reference in session.execute(query)
    }
