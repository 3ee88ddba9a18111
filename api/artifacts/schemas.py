"""JSON schemas of artifacts."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from pydantic import BaseModel, Field

from api import schemas as shared
from api.jobs import schemas as job_schemas
from domain.artifacts import Artifact as DomainArtifact
from domain.digests import ArtifactDigest, ModelDigest


class Artifact(BaseModel):
    id: str
    digest: ArtifactDigest = Field(description="sha256 of the bundle's bytes, hex; also its strong ETag.")
    bytes: int
    job_id: str | None = Field(description="The job that published it first; null if it has another owner.")
    model_digest: ModelDigest
    input_shapes: dict[str, list[int]] = Field(
        description="Of a bundle of several sizes, with 0 for the dimensions that vary."
    )
    sizes: list[job_schemas.Size] = Field(description="Entry points of the bundle; empty if it has one.")
    target: str
    device_key: str
    toolchain: str
    precision: str
    bundle_format: str
    verified: bool = Field(
        description="False if it was not run on the target or an emulator of it, or if an output could not be compared "
        "with the reference."
    )
    report: job_schemas.Report
    download: str = Field(description="Path of the bundle's bytes on this server.")
    created_at: datetime


class ArtifactPage(BaseModel):
    artifacts: list[Artifact] = Field(description="Newest first.")
    next_page_token: str | None = Field(description="Null on the last page.")


class Best(BaseModel):
    artifact: Artifact
    why: str = Field(description="Why this artifact was chosen, in a sentence.")


def artifact(value: DomainArtifact, *, jobs: Collection[str]) -> Artifact:
    """Convert an artifact; ``jobs`` are the ids of jobs that the caller may see."""
    return shared.fill(
        Artifact,
        value,
        bytes=value.size_bytes,
        job_id=value.job_id if value.job_id in jobs else None,
        download=f"/v1/artifacts/{value.id}/download",
    )
