"""Tokens and login links as JSON."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from domain.tokens import Scope


class LoginLink(BaseModel):
    url: str = Field(description="To be opened in a browser, once.")
    expires_at: datetime


class Quota(BaseModel):
    """Null is no limit."""

    running_jobs: int | None = Field(description="Most jobs at work at a time; more wait in the queue.")
    queued_jobs: int | None = Field(description="Most jobs in the queue; more are refused.")
    stored_bytes: int | None = Field(
        description="Most bytes of the models that the owner uploaded and the artifacts of the owner's jobs."
    )


class Token(BaseModel):
    id: str
    name: str
    owner: str
    scopes: list[Scope]
    quota: Quota
    created_at: datetime
    expires_at: datetime | None = Field(description="Null: never.")
    last_used_at: datetime | None = Field(description="To the minute; null when it never was.")
    revoked_at: datetime | None
    active: bool = Field(description="Neither revoked nor expired.")


class NewToken(Token):
    token: str = Field(description="The token's text. Nobody can ask for it again: only its digest is stored.")


class TokenPage(BaseModel):
    tokens: list[Token] = Field(description="Newest first.")
    next_page_token: str | None = Field(description="Null on the last page.")


class Usage(BaseModel):
    """What counts towards the quota right now."""

    running_jobs: int
    queued_jobs: int
    stored_bytes: int


class Caller(BaseModel):
    """What the token, or the browser's session, that made the request may do."""

    owner: str = Field(description="Whose jobs and models it makes and sees.")
    scopes: list[Scope]
    quota: Quota
    usage: Usage
    token: Token | None = Field(description="Null for the service's own token.")
