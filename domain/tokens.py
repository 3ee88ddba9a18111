"""Callers, their permissions and quotas."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Scope(StrEnum):
    READ = "read"  # read one's own models, jobs and artifacts, and the fleet
    SUBMIT = "submit"  # upload models, create, cancel and retry jobs, import records
    ADMIN = "admin"  # access objects of all owners; manage tokens and devices


LOCAL_OWNER = "local"
"""Owner of everything created with the service's own token, or before owners existed."""


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Limits of one token; None means no limit."""

    running_jobs: int | None = None
    """More jobs stay in the queue."""
    queued_jobs: int | None = None
    """More jobs are rejected."""
    stored_bytes: int | None = None
    """Bytes of models that the owner uploaded, and their artifacts."""


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
    """The caller of a request."""

    owner: str
    scopes: frozenset[Scope]
    token_id: str | None = None
    """None for the service's own token, and without authentication."""
    quota: Quota = Quota()
    expires_at: datetime | None = None
    """Expiry of the caller's token."""

    @property
    def sees_all(self) -> bool:
        return Scope.ADMIN in self.scopes
