"""A job's status, rendered once for all who ask at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from api import schemas


@dataclass(frozen=True)
class Status:
    detail: schemas.JobDetail
    last_event: int
    """Id of an event that the detail covers, as it covers all before."""

    @cached_property
    def body(self) -> bytes:
        return self.detail.model_dump_json().encode()
