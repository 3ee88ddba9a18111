"""Who looks at a page."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import Depends, Request

from api.services import ServicesDep
from domain import errors
from domain.tokens import LOCAL_OWNER, Principal, Scope


def _visitor(request: Request, services: ServicesDep) -> Principal:
    caller = getattr(request.state, "caller", None)
    if isinstance(caller, errors.TunesmithError):
        raise caller
    if isinstance(caller, Principal):
        return caller
    return _by_token(request, services)


def _by_token(request: Request, services: ServicesDep) -> Principal:
    token = services.settings.token
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if token is None or secrets.compare_digest(given.encode(), token.get_secret_value().encode()):
        return Principal(owner=LOCAL_OWNER, scopes=frozenset(Scope))
    raise errors.Unauthorized("this page needs a session")


VisitorDep = Annotated[Principal, Depends(_visitor)]
"""Whoever may read. Raises Unauthorized, which browsers see as the page that says how to get in."""
