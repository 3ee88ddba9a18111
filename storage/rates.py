"""How fast trials went, told from what finished searches took."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from domain.jobs import Stage
from storage.tables import JobRow, StageRow

SECONDS_A_TRIAL = 0.5
"""To be taken where a device has no trials yet: AutoTVM's candidates of small networks, built and measured by workers
that live on, took 0.2 to 0.4 s on two cores; larger ones and other tuners take longer."""

_JOBS = 5
_LOOKED_AT = 4 * _JOBS
"""Jobs of other tuners on the same toolchain are among the latest."""
_LEAST_TRIALS = 32
"""Of fewer the start of the engine and of its helpers is too large a part: it says nothing of what the next costs."""


def seconds_a_trial(session: Session, *, device_key: str, toolchain: str, tuner: str) -> float | None:
    """What a trial of this tuner took on this device, from the latest jobs there; None when too few are stored.

    All of a search's tuning time counts, over all its attempts: starting engines and choosing candidates is part of
    what a trial costs. The median job counts.
    """
    latest = (
        select(StageRow.outcome)
        .join(JobRow, JobRow.id == StageRow.job_id)
        .where(
            JobRow.device_key == device_key,
            JobRow.toolchain == toolchain,
            JobRow.trials_done >= _LEAST_TRIALS,
            StageRow.stage == Stage.TUNE,
        )
        .order_by(JobRow.created_at.desc())
        .limit(_LOOKED_AT)
    )
    paces = [_pace(outcome, tuner) for outcome in session.scalars(latest)]
    known = [pace for pace in paces if pace is not None]
    return median(known[:_JOBS]) if known else None


def _pace(outcome: Mapping[str, Any], tuner: str) -> float | None:
    """Of the arms with that tuner together; None where other workers helped, whose seconds nobody added up."""
    if outcome.get("helpers"):
        return None
    arms = [arm for arm in outcome.get("arms", ()) if arm["tuner"] == tuner]
    trials, seconds = sum(arm["trials"] for arm in arms), sum(arm["seconds"] for arm in arms)
    return seconds / trials if trials >= _LEAST_TRIALS and seconds > 0 else None
