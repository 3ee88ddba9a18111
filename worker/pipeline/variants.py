"""The compiled variants of a job and the processes that run them."""

from __future__ import annotations

from pathlib import Path

from domain.artifacts import Variant
from domain.jobs import Stage
from domain.ports import Engine
from worker.engines import RELAY
from worker.pipeline.work import TUNED, UNTUNED, Work

_FOLDERS = {Variant.UNTUNED: UNTUNED, Variant.TUNED: TUNED}


def compiled(work: Work) -> list[Variant]:
    return [Variant.UNTUNED, Variant.TUNED] if work.outcomes[Stage.COMPILE]["tuned"] else [Variant.UNTUNED]


def folder(work: Work, variant: Variant) -> Path:
    return work.folder / _FOLDERS[variant]


def engine(work: Work, variant: Variant) -> Engine:
    """A process for each variant: one that crashes takes no other with it, and none shares a thread pool."""
    return work.engines.get(RELAY, role=variant)
