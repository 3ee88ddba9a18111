"""Authentication dependencies of routes: ``PrincipalDep``, and ``Reader``, ``Submitter`` and ``Admin`` with a scope."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Request, Security
from fastapi.security import HTTPBearer, SecurityScopes
from fastapi.security.http import HTTPAuthorizationCredentials

from domain import errors
from domain.tokens import Principal, Scope

_bearer = HTTPBearer(
    auto_error=False,
    description="A token, or the server's own token in server.json or TUNESMITH_TOKEN; see docs/how-to/access.md.",
)

KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Repeating the request with the same key within seven days returns the first response and changes "
        "nothing. Keys are separate for each owner.",
        examples=["build-1234-resnet50"],
    ),
]
"""See ``storage.idempotency``."""


def is_still_valid(request: Request) -> bool:
    """Return whether the token or session of a long-running request is still valid."""
    find = getattr(request.state, "find_again", None)
    try:
        return find is None or isinstance(find(), Principal)
    except errors.Unauthorized:
        return False


async def _principal(
    request: Request, _documented: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    """Return the caller. Raises Unauthorized and TokenExpired."""
    # Asynchronous, as below, because FastAPI runs synchronous dependencies in threads.
    caller = request.state.caller
    if isinstance(caller, Principal):
        return caller
    raise caller


def any_principal() -> Any:
    return Depends(_principal)


PrincipalDep = Annotated[Principal, Depends(_principal)]


async def _permitted(wanted: SecurityScopes, principal: PrincipalDep) -> Principal:
    for scope in wanted.scopes:
        if scope not in principal.scopes:
            theirs = ", ".join(sorted(principal.scopes)) or "none"
            raise errors.MissingScope(
                f"this request needs the scope {scope!r}; the token has {theirs}",
                details={"needed": scope, "scopes": sorted(principal.scopes)},
            )
    return principal


def require(scope: Scope) -> Any:
    """Return a dependency that yields the Principal. Raises Unauthorized, TokenExpired and MissingScope."""
    return Security(_permitted, scopes=[scope.value])


Reader = Annotated[Principal, require(Scope.READ)]
Submitter = Annotated[Principal, require(Scope.SUBMIT)]
Admin = Annotated[Principal, require(Scope.ADMIN)]
