"""JSON that several resources share. Times are UTC, durations and latencies seconds, sizes bytes."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, Field

Schema = TypeVar("Schema", bound=BaseModel)


class Failure(BaseModel):
    code: str
    message: str
    hint: str | None
    details: dict[str, Any]


class Notice(Failure):
    """A warning."""


class Deletion(BaseModel):
    id: str
    gone: bool = Field(description="False if the file is kept because others uploaded the same model.")


def fill(kind: type[Schema], *values: object, **given: Any) -> Schema:
    """Fill a model from fields of the same name of ``values``, the last one first, and from ``given``."""
    found: dict[str, Any] = {}
    for value in values:
        found |= vars(value)
    return kind.model_validate(found | given, from_attributes=True)
