"""Access tokens, which admins create, and login links for browsers, which every caller may create."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tunesmith.transport import Json, Transport, segment


@dataclass(frozen=True, kw_only=True)
class Token:
    id: str
    name: str
    owner: str
    scopes: tuple[str, ...]
    text: str | None = field(repr=False)
    """The secret to send. Only the response to ``create`` contains it."""
    data: Json = field(repr=False)
    """All other fields of the server: quota, times of creation, expiry, last use and revocation."""

    @classmethod
    def of(cls, data: Json) -> Token:
        rest = {name: value for name, value in data.items() if name != "token"}
        return cls(
            id=data["id"],
            name=data["name"],
            owner=data["owner"],
            scopes=tuple(data["scopes"]),
            text=data.get("token"),
            data=rest,
        )


class Tokens:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        name: str,
        *,
        owner: str | None = None,
        scopes: Sequence[str] = ("read", "submit"),
        expires_in_seconds: int | None = None,
        expires_at: datetime | None = None,
        running_jobs: int | None = None,
        queued_jobs: int | None = None,
        stored_bytes: int | None = None,
    ) -> Token:
        """Create a token. Its ``text`` is only available now.

        ``owner`` None is the caller; a limit of None means no limit.
        """
        quota = {"running_jobs": running_jobs, "queued_jobs": queued_jobs, "stored_bytes": stored_bytes}
        draft = {
            "name": name,
            "owner": owner,
            "scopes": list(scopes),
            "expires_in_seconds": expires_in_seconds,
            "expires_at": expires_at.isoformat() if expires_at else None,
            "quota": quota,
        }
        return Token.of(self._transport.post("/v1/tokens", draft).json())

    def list(self, *, owner: str | None = None) -> Iterator[Token]:
        """Iterate over tokens, newest first, including revoked and expired ones. Fetches pages lazily."""
        return map(Token.of, self._transport.pages("/v1/tokens", "tokens", {"owner": owner}))

    def revoke(self, token_id: str) -> Token:
        """Revoke a token permanently. Revoking it again has no effect."""
        return Token.of(self._transport.delete(f"/v1/tokens/{segment(token_id)}").json())

    def own(self) -> Json:
        """Return owner, scopes, quota and usage of this client's token, as ``GET /v1/tokens/self``."""
        return dict(self._transport.get("/v1/tokens/self").json())

    def login_link(self) -> Json:
        """Create a link, ``url``, that opens the dashboard once, with this client's permissions."""
        return dict(self._transport.post("/v1/login-links").json())
