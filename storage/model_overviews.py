"""What became of models: how many jobs they had, and the fastest artifacts that those published."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from domain.artifacts import Artifact
from storage import artifacts
from storage.tables import ArtifactRow, JobRow

_USABLE = (ArtifactRow.verified, ArtifactRow.published_median.is_not(None), ArtifactRow.deleted_at.is_(None))
_MOST_ARTIFACTS = 5000
"""Of one model, the newest: more are not looked at."""


@dataclass(frozen=True, kw_only=True)
class ModelOverview:
    jobs: int = 0
    fastest: Artifact | None = None
    """Of any target, device, precision and shapes, verified."""


def of_models(session: Session, digests: Sequence[str], *, owner: str | None = None) -> dict[str, ModelOverview]:
    """Of each digest; ``owner`` counts their jobs alone."""
    counted = select(JobRow.model_digest, func.count()).where(JobRow.model_digest.in_(digests))
    if owner is not None:
        counted = counted.where(JobRow.owner == owner)
    jobs = dict(session.execute(counted.group_by(JobRow.model_digest)).all())
    rank = func.row_number().over(
        partition_by=ArtifactRow.model_digest, order_by=(ArtifactRow.published_median, ArtifactRow.created_at)
    )
    ranked = select(ArtifactRow.id, rank.label("rank")).where(ArtifactRow.model_digest.in_(digests), *_USABLE)
    first = ranked.subquery()
    fastest = {one.model_digest: one for one in _by_ids(session, select(first.c.id).where(first.c.rank == 1))}
    return {digest: ModelOverview(jobs=jobs.get(digest, 0), fastest=fastest.get(digest)) for digest in digests}


def fastest(session: Session, digest: str, *, most: int = 100) -> list[Artifact]:
    """The model's fastest verified artifact of each target, device, precision, input shapes and toolchain.

    The fastest first, of equals the oldest; at most ``most``.
    """
    newest = (
        select(ArtifactRow.id)
        .where(ArtifactRow.model_digest == digest, *_USABLE)
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
        )
        .where(ArtifactRow.id.in_(newest))
        .order_by(ArtifactRow.published_median, ArtifactRow.created_at)
    )
    found: dict[tuple[str, ...], str] = {}
    for artifact_id, *identity, shapes in session.execute(query):
        found.setdefault((*identity, json.dumps(shapes, sort_keys=True)), artifact_id)
    wanted = list(found.values())[:most]
    by_id = {one.id: one for one in _by_ids(session, wanted)}
    return [by_id[artifact_id] for artifact_id in wanted]


def _by_ids(session: Session, ids: Any) -> list[Artifact]:
    """``ids``: a sequence or a query of them."""
    return [artifacts.from_row(row) for row in session.scalars(select(ArtifactRow).where(ArtifactRow.id.in_(ids)))]
