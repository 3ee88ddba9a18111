"""Query parameters of all listings."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

MOST_ENTRIES = 200
ENTRIES = 50
_LIMIT = "Maximum number of entries on a page."
_PAGE_TOKEN = "next_page_token of the previous page; omit it for the first page."  # noqa: S105 - no password
_LONGEST_TOKEN = 500

LimitParam = Annotated[int, Query(ge=1, le=MOST_ENTRIES, description=_LIMIT)]
PageTokenParam = Annotated[str | None, Query(max_length=_LONGEST_TOKEN, description=_PAGE_TOKEN)]


class Listed(BaseModel):
    """Base of queries with many filters; unknown parameters are errors, as ignoring them would list too much."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(default=ENTRIES, ge=1, le=MOST_ENTRIES, description=_LIMIT)
    page_token: str | None = Field(default=None, max_length=_LONGEST_TOKEN, description=_PAGE_TOKEN)
