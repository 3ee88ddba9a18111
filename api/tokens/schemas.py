"""JSON schemas of tokens and quotas."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from domain.tokens import Scope


class LoginLink(BaseModel):
    url: str = Field(description="Open it in a browser; it works once.")
    expires_at: datetime


class Quota(BaseModel):
    """Null: no limit."""

    running_jobs: int | None = Field(description="Maximum number of running jobs; more wait in the queue.")
    queued_jobs: int | None = Field(description="Maximum number of queued jobs; more are refused.")
    stored_bytes: int | None = Field(description="Maximum total size of the owner's models and artifacts.")


class Token(BaseModel):
    id: str
    name: str
    owner: str
    scopes: list[Scope]
    quota: Quota
    created_at: datetime
    expires_at: datetime | None = Field(description="Null: never.")
    last_used_at: datetime | None = Field(description="Rounded to the minute; null: never.")
    revoked_at: datetime | None
    active: bool = Field(description="Neither revoked nor expired.")


class NewToken(Token):
    token: str = Field(description="The token itself, shown only once: the server stores its digest.")


class TokenPage(BaseModel):
    tokens: list[Token] = Field(description="Newest first.")
    next_page_token: str | None = Field(description="Null on the last page.")


class Usage(BaseModel):
    """Current usage of the quota."""

    running_jobs: int
    queued_jobs: int
    stored_bytes: int


class Caller(BaseModel):
    """Rights of the token or browser session that made the request."""

    owner: str = Field(description="Owner of the jobs and models that it creates and sees.")
    scopes: list[Scope]
    quota: Quota
    usage: Usage
    token: Token | None = Field(description="Null for the server's own token.")
