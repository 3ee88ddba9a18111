"""Who calls, what they may do and how much of the service they may use."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Scope(StrEnum):
    READ = "read"  # look at one's own models, jobs and artifacts, and at the fleet
    SUBMIT = "submit"  # upload models, create, cancel and retry jobs, import records
    ADMIN = "admin"  # what everyone owns; tokens; devices


LOCAL_OWNER = "local"
"""Owner of whatever is made with the service's own token, or was made before there were owners."""


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Most that one token may have at a time; None is no limit."""

    running_jobs: int | None = None
    """More wait in the queue."""
    queued_jobs: int | None = None
    """More are refused."""
    stored_bytes: int | None = None
    """Of models that its owner uploaded, and their artifacts."""


@dataclass(frozen=True, kw_only=True)
class Token:
    id: str
    name: str
    owner: str
    scopes: frozenset[Scope]
    quota: Quota
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who makes a request."""

    owner: str
    scopes: frozenset[Scope]
    token_id: str | None = None
    """None for the service's own token, and where the service lets everyone in."""
    quota: Quota = Quota()
    expires_at: datetime | None = None
    """When the token expires that it stands for."""

    @property
    def sees_all(self) -> bool:
        return Scope.ADMIN in self.scopes
