"""One bearer token for the whole service."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import Depends, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.services import ServicesDep

_bearer = HTTPBearer(auto_error=False, description="The token of server.json or TUNESMITH_TOKEN.")


def authorize(
    services: ServicesDep, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> None:
    token = services.settings.token
    if token is None:
        return
    given = credentials.credentials if credentials else ""
    if not secrets.compare_digest(given.encode(), token.get_secret_value().encode()):
        detail = "the token is not valid" if credentials else "a bearer token is required"
        raise HTTPException(401, detail, headers={"WWW-Authenticate": "Bearer"})
