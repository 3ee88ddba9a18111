"""Jobs that belong together, because whoever made them gave them the same group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from domain.jobs import JobState


@dataclass(frozen=True, kw_only=True)
class Group:
    """An owner's: another owner's group of the same name is another one."""

    name: str
    owner: str
    counts: Mapping[JobState, int]
    """Of the states that any of its jobs is in."""
    newest_job: str
    newest_at: datetime
