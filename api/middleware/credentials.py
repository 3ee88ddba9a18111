"""Authentication of requests, before their bodies are read."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from datetime import UTC, datetime
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import anyio
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api import problems
from api.middleware import Middleware, rate_limit
from api.services import Services
from domain import errors
from domain.tokens import LOCAL_OWNER, Principal, Token
from domain.tokens import Scope as TokenScope
from storage import browser_sessions, tokens

COOKIE = "tunesmith_session"
LOGIN_PATH = "/login"
LOCAL: Final = Principal(owner=LOCAL_OWNER, scopes=frozenset(TokenScope))
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PRIVATE_NAMES = (".localhost", ".local", ".internal", ".home.arpa")
_UNGUESSABLE_LENGTH = 24
"""Minimum length of a token that cannot be guessed; TUNESMITH_TOKEN may be shorter."""


class Credentials(Middleware):
    """Stores a Principal, or the authentication error, in the request's state as ``caller``.

    An address with too many failures is rate limited. Random tokens are still checked then, as they cannot be guessed,
    so that an attacker cannot lock out others at the same address. A short TUNESMITH_TOKEN is not compared in the
    meantime.
    """

    def __init__(self, app: ASGIApp, services: Services) -> None:
        super().__init__(app)
        self._services = services
        self._own_name = socket.getfqdn().lower() if services.settings.open else ""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            caller = await self._caller(request)
        except (errors.RateLimited, errors.Forbidden, errors.DatabaseUnavailable, errors.DatabaseDamaged) as error:
            await problems.tunesmith_error(request, error)(scope, receive, send)
            return
        except errors.Unauthorized as error:
            caller = error
        scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)

    async def _caller(self, request: Request) -> Principal | errors.Unauthorized:
        header, cookie = request.headers.get("authorization", ""), request.cookies.get(COOKIE)
        if self._services.settings.open:
            _refuse_unknown_host(request, self._own_name)
            refuse_cross_site(request, required=False)
            return LOCAL
        if request.url.path.startswith(rate_limit.STATIC_PATH):
            return errors.Unauthorized("files of pages are for everyone")
        if token := _bearer(header):
            return await self._checked(request, token, is_session=False)
        if cookie:
            principal = await self._checked(request, cookie, is_session=True)
            refuse_cross_site(request, required=True)
            return principal
        return errors.Unauthorized("a bearer token is required")

    async def _checked(self, request: Request, text: str, *, is_session: bool) -> Principal:
        if not is_session and self._is_own(request, text):
            return LOCAL
        find = partial(principal_of_session if is_session else principal_of_token, self._services, text)
        request.state.find_again = find
        try:
            return await anyio.to_thread.run_sync(find)
        except problems.DATABASE_ERRORS as error:
            raise (problems.of_database(error) or error) from error
        except errors.Unauthorized:
            count_failure(self._services, request)
            raise

    def _is_own(self, request: Request, text: str) -> bool:
        if len(text) < _UNGUESSABLE_LENGTH:
            _refuse_guessing(self._services, request)
        return bool(text) and secrets.compare_digest(text.encode(), own_token(self._services).encode())


def count_failure(services: Services, request: Request) -> None:
    """Count a failed login of the address. Raises RateLimited after too many."""
    _raise_if(services.failures.take(rate_limit.address(request.scope)))


def _refuse_guessing(services: Services, request: Request) -> None:
    _raise_if(services.failures.wait(rate_limit.address(request.scope)))


def _raise_if(seconds: float) -> None:
    if seconds:
        raise rate_limit.exceeded(seconds, "failed logins")


def own_token(services: Services) -> str:
    """Return the service's own token; empty if there is none."""
    token = services.settings.token
    return token.get_secret_value() if token else ""


def principal_of_token(services: Services, text: str) -> Principal:
    """Return the caller of a token. Raises Unauthorized and TokenExpired."""
    if not text.startswith(tokens.PREFIX):
        raise errors.Unauthorized("the token is not valid")
    with services.database.reading() as session:
        token = tokens.find(session, text)
    if token is None:
        raise errors.Unauthorized("the token is not valid")
    return _used(services, token)


def principal_of_session(services: Services, secret: str) -> Principal:
    """Return the caller of a session, by the token that opened it. Raises Unauthorized and TokenExpired."""
    now, own = datetime.now(UTC), own_token(services)
    with services.database.reading() as session:
        found = browser_sessions.find(session, secret, own_token=own, now=now)
        if found is None:
            raise errors.Unauthorized("the session has ended", hint="Open a new login link: tunesmith login.")
        token_id, expires_at = found
        token = tokens.get(session, token_id) if token_id else None
    principal = _used(services, token) if token else LOCAL
    if browser_sessions.is_renewal_due(expires_at, now):
        with services.database.transaction() as session:
            browser_sessions.renew(session, secret, own_token=own, now=now)
    return principal


def _used(services: Services, token: Token) -> Principal:
    now = datetime.now(UTC)
    if token.revoked_at is not None:
        raise errors.Unauthorized("the token was revoked", hint="Ask an admin for a new token: tunesmith token create.")
    if token.expires_at is not None and token.expires_at <= now:
        raise errors.TokenExpired(f"the token expired at {token.expires_at:%Y-%m-%d %H:%M} UTC")
    if not tokens.is_use_known(token, now):
        with services.database.transaction() as session:
            tokens.used(session, token.id, now=now)
    return Principal(
        owner=token.owner, scopes=token.scopes, token_id=token.id, quota=token.quota, expires_at=token.expires_at
    )


def _bearer(header: str) -> str:
    """Return the bearer token; empty for other schemes, such as a password that a browser sends to a proxy."""
    scheme, _, text = header.partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


def refuse_cross_site(request: Request, *, required: bool) -> None:
    """Reject cross-site requests of browsers, by Sec-Fetch-Site or Origin.

    With ``required``, requests without these headers are rejected, too. Raises Forbidden.
    """
    if request.method in _SAFE:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        same = site == "same-origin"
    elif origin is not None:
        # Without the scheme, which a proxy that terminates TLS changes.
        same = urlsplit(origin).netloc == request.headers.get("host")
    else:
        same = not required
    if not same:
        raise errors.Forbidden(
            "a browser may send this request only from this service's own pages",
            hint="Programs send 'Authorization: Bearer TOKEN' instead of a cookie.",
        )


def _refuse_unknown_host(request: Request, own_name: str) -> None:
    """Reject unknown host names as a defence against DNS rebinding, when no login is needed.

    Allowed are addresses, this host's name, and names that do not exist in the public DNS. Raises Forbidden.
    """
    name = (request.url.hostname or "").rstrip(".").lower()
    if "." not in name or name.endswith(_PRIVATE_NAMES) or name == own_name:
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise errors.Forbidden(
            f"while TUNESMITH_OPEN is set, this service does not accept the host name {name[:100]!r}",
            hint="Use its IP address or its own host name; a proxy must send one of them as Host.",
        ) from None
