"""The fields of a submitted form."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from api.jobs import plain_text
from domain import errors

_MOST_FIELDS = 1000


async def _fields(request: Request) -> dict[str, str]:
    body = await request.body()
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=_MOST_FIELDS)
        fields = dict(pairs)
        plain_text.check(fields)
    except ValueError:
        raise errors.InvalidRequest("the body is not that of a form, or its text holds NUL characters") from None
    return fields


SubmittedDep = Annotated[dict[str, str], Depends(_fields)]
"""By name, of several of one name the last. Raises InvalidRequest."""
