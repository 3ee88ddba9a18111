"""What a list of jobs shows beside the jobs themselves: a few columns of many rows, each read at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.tables import ArtifactRow, ModelRow


@dataclass(frozen=True, kw_only=True)
class ModelName:
    id: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What a published artifact claims."""

    published: str
    """The variant."""
    median: float | None
    """Seconds of one run; None where nothing was run."""
    over_untuned: float
    over_reference: float | None


def model_names(session: Session, digests: Collection[str]) -> dict[str, ModelName]:
    """By digest; unknown ones are left out."""
    query = select(ModelRow.digest, ModelRow.id, ModelRow.name).where(ModelRow.digest.in_(set(digests)))
    return {digest: ModelName(id=model_id, name=name) for digest, model_id, name in session.execute(query)}


def gains(session: Session, artifact_ids: Collection[str]) -> dict[str, Gain]:
    """By artifact id. Of a report, which has every sample of a benchmark, the database hands out four numbers."""
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
