"""What a list of jobs can be narrowed down to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field

from api.paging import Listed
from domain.jobs import JobState, Tuner

_AT = "2026-01-31T12:00:00Z"


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("this time does not exist in UTC") from None


_Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]


class JobQuery(Listed):
    """Everything that is given must hold."""

    owner: str | None = Field(default=None, max_length=100, description="For admins: whose; all by default.")
    state: JobState | None = None
    model: str | None = Field(default=None, max_length=200, description="Id or digest.")
    label: str | None = Field(default=None, max_length=500, description="NAME=VALUE.", examples=["team=vision"])
    group: str | None = Field(default=None, max_length=200, description="The group that the jobs were created in.")
    target: str | None = Field(
        default=None,
        max_length=1000,
        description="As it was asked for, or as a worker resolved it; without a thread count any will do.",
        examples=["llvm -mcpu=znver3"],
    )
    tuner: Tuner | None = Field(default=None, description="As it was asked for.")
    created_after: _Instant | None = Field(default=None, description="Then or later.", examples=[_AT])
    created_before: _Instant | None = Field(default=None, description="Earlier.", examples=[_AT])
    text: str | None = Field(
        default=None,
        max_length=200,
        description="Part of the model's name, the group or a label's value, or the beginning of the job's id.",
    )
