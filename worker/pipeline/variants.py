"""The compiled variants of a job and the processes that run them."""

from __future__ import annotations

from pathlib import Path

from domain.artifacts import Variant
from domain.jobs import Stage
from domain.ports import Engine
from worker.pipeline.work import TUNED, UNTUNED, Work


def compiled(work: Work) -> list[Variant]:
    return [Variant.UNTUNED, Variant.TUNED] if work.outcomes[Stage.COMPILE]["tuned"] else [Variant.UNTUNED]


def untuned_folder(engine: str) -> str:
    """Within the work folder."""
    return f"{UNTUNED}-{engine}"


def folder(work: Work, variant: Variant) -> Path:
    return work.folder / (TUNED if variant is Variant.TUNED else untuned_folder(engine_name(work, variant)))


def engine_name(work: Work, variant: Variant) -> str:
    """The tuned build is the leading engine's, the untuned one that of the fastest engine that is right."""
    return work.engine if variant is Variant.TUNED else str(work.outcomes[Stage.BASELINE]["engine"])


def engine(work: Work, variant: Variant) -> Engine:
    """A process for each variant: one that crashes takes no other with it, and none shares a thread pool."""
    return work.engines.get(engine_name(work, variant), role=variant)
