"""Artifacts: the published bundles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.orm import Session

from domain import errors
from domain.artifacts import PART, Artifact
from domain.digests import ModelDigest
from storage import codec, models, paging, statements
from storage.tables import ArtifactRow, JobRow

USABLE = (
    ArtifactRow.verified,
    ArtifactRow.published_median.is_not(None),
    ArtifactRow.deleted_at.is_(None),
    ArtifactRow.bundle_format != PART,
)
"""Conditions of artifacts that can be the best one."""


def add(session: Session, artifact: Artifact) -> Artifact:
    """Store an artifact, or return the existing one with this digest; publishing a deleted one again restores it.

    If another artifact has the short id, the id is the full digest.
    """
    statements.lock_digest(session, artifact.digest)
    taken = select(ArtifactRow.id).where(ArtifactRow.id == artifact.id, ArtifactRow.digest != artifact.digest)
    if session.scalar(taken):
        artifact = replace(artifact, id=f"a-{artifact.digest}")
    statements.add_missing(session, ArtifactRow, [_values(artifact)], key=["digest"])
    deleted = update(ArtifactRow).where(ArtifactRow.digest == artifact.digest, ArtifactRow.deleted_at.is_not(None))
    statements.changed(session, deleted.values(deleted_at=None))
    return get(session, artifact.digest)


def get(session: Session, id_or_digest: str) -> Artifact:
    """Return an artifact, also a deleted one. Raises ArtifactNotFound."""
    wanted = or_(ArtifactRow.id == id_or_digest, ArtifactRow.digest == id_or_digest)
    row = session.scalar(select(ArtifactRow).where(wanted), execution_options={"populate_existing": True})
    if row is None:
        raise errors.ArtifactNotFound(f"there is no artifact {id_or_digest[:80]!r}")
    return from_row(row)


def of_job(session: Session, job_id: str) -> Artifact | None:
    """Return the artifact of a job, also if an earlier job published the same bytes or if it was deleted."""
    published = select(JobRow.artifact_id).where(JobRow.id == job_id)
    wanted = or_(ArtifactRow.job_id == job_id, ArtifactRow.id.in_(published))
    newest = select(ArtifactRow).where(wanted).order_by(ArtifactRow.created_at.desc()).limit(1)
    row = session.scalar(newest)
    return from_row(row) if row else None


def best(
    session: Session,
    *,
    model_digest: ModelDigest,
    target: str | None = None,
    device_key: str | None = None,
    toolchain: str | None = None,
    precision: str | None = None,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Artifact:
    """Return the verified artifact whose published variant has the smallest median latency; of equal ones, the oldest.

    ``target`` is the identity of a target, or its text for any thread count. ``toolchain`` is a toolchain or a prefix
    such as ``relay/tvm-0.19.0``. Inputs that ``input_shapes`` omits may have any shape; of a bundle of several sizes,
    one has these shapes. Raises ArtifactNotFound.
    """
    requested = _requested(target=target, device_key=device_key, precision=precision)
    query = select(ArtifactRow).where(ArtifactRow.model_digest == model_digest, *USABLE, *requested)
    if toolchain is not None:
        beginning = ArtifactRow.toolchain.startswith(f"{toolchain}/", autoescape=True)
        query = query.where(or_(ArtifactRow.toolchain == toolchain, beginning))
    shapes = {name: list(shape) for name, shape in (input_shapes or {}).items()}
    rows = session.scalars(query.order_by(ArtifactRow.published_median, ArtifactRow.created_at))
    row = next((row for row in rows if _has(row, shapes)), None) if shapes else rows.first()
    if row is None:
        wanted = {"model": model_digest, "target": target, "device": device_key, "precision": precision}
        wanted["toolchain"] = toolchain
        given = {name: value for name, value in {**wanted, "input_shapes": shapes or None}.items() if value is not None}
        raise errors.ArtifactNotFound("no job has published an artifact for this model and target", details=given)
    return from_row(row)


def page(
    session: Session,
    *,
    owner: str | None = None,
    model_digest: ModelDigest | None = None,
    target: str | None = None,
    device_key: str | None = None,
    precision: str | None = None,
    limit: int,
    page_token: str | None = None,
) -> tuple[list[Artifact], str | None]:
    """Return a page of artifacts, newest first, without deleted ones; ``owner`` is an owner of the model, ``target`` as
    for ``best``.

    Raises InvalidPageToken.
    """
    requested = _requested(target=target, device_key=device_key, precision=precision)
    query = select(ArtifactRow).where(ArtifactRow.deleted_at.is_(None), ArtifactRow.bundle_format != PART, *requested)
    if owner is not None:
        query = query.where(ArtifactRow.model_digest.in_(models.owned_by(owner)))
    if model_digest is not None:
        query = query.where(ArtifactRow.model_digest == model_digest)
    return paging.page(session, query, ArtifactRow, from_row, limit=limit, page_token=page_token)


def _has(row: ArtifactRow, shapes: Mapping[str, list[int]]) -> bool:
    every = [row.input_shapes, *(size["input_shapes"] for size in row.sizes or [])]
    return any(shapes.items() <= each.items() for each in every)


def _requested(*, target: str | None, device_key: str | None, precision: str | None) -> Iterator[ColumnElement[bool]]:
    if target is not None:
        any_threads = ArtifactRow.target.startswith(f"{target} -num-cores=", autoescape=True)
        yield or_(ArtifactRow.target == target, any_threads)
    if device_key is not None:
        yield ArtifactRow.device_key == device_key
    if precision is not None:
        yield ArtifactRow.precision == precision


def _values(artifact: Artifact) -> dict[str, Any]:
    timing = artifact.report.timings.get(artifact.report.published)
    row = codec.to_row(artifact, without=["deleted_at"])
    return row | {"published_median": timing.median if timing else None, "sizes": row["sizes"] or None}


def from_row(row: ArtifactRow) -> Artifact:
    return codec.from_row(Artifact, row, sizes=row.sizes or ())
