"""Query parameters that every listing shares."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

LimitParam = Annotated[int, Query(ge=1, le=200, description="Most entries of one page.")]
PageTokenParam = Annotated[
    str | None, Query(max_length=500, description="next_page_token of the previous page; none for the first.")
]
