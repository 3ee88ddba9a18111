"""The compiled variants of a job and the processes that run them."""

from __future__ import annotations

from pathlib import Path

from domain.artifacts import Variant
from domain.jobs import Stage
from domain.ports import Engine
from worker.pipeline import builds
from worker.pipeline.builds import Build
from worker.pipeline.work import UNTUNED, Work


def tuned(work: Work) -> Build | None:
    """The build that stage ``verify`` chose of all that were tuned."""
    chosen = work.outcomes[Stage.VERIFY]["tuned"]
    return builds.load(chosen) if chosen else None


def compiled(work: Work) -> list[Variant]:
    return [Variant.UNTUNED, Variant.TUNED] if tuned(work) else [Variant.UNTUNED]


def untuned_folder(engine: str) -> str:
    """Within the work folder."""
    return f"{UNTUNED}-{engine}"


def folder(work: Work, variant: Variant) -> Path:
    build = _build(work, variant)
    return build.path(work) if build else work.folder / untuned_folder(engine_name(work, variant))


def engine_name(work: Work, variant: Variant) -> str:
    """The untuned build is that of the fastest engine that is right."""
    build = _build(work, variant)
    return build.engine if build else str(work.outcomes[Stage.BASELINE]["engine"])


def engine(work: Work, variant: Variant) -> Engine:
    """A process for each variant: one that crashes takes no other with it, and none shares a thread pool."""
    build = _build(work, variant)
    return work.engines.get(engine_name(work, variant), role=build.folder if build else variant)


def _build(work: Work, variant: Variant) -> Build | None:
    return tuned(work) if variant is Variant.TUNED else None
