"""Routes for creating, listing and revoking tokens, and for one's own token."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field, StringConstraints

from api import problems
from api import schemas as shared
from api.auth import Admin, PrincipalDep
from api.jobs.drafts import Draft
from api.paging import LimitParam, PageTokenParam
from api.services import ServicesDep
from api.tokens import schemas
from domain import errors
from domain.jobs import LEASED_STATES, JobState
from domain.tokens import Quota, Scope, Token
from storage import quotas, tokens

router = APIRouter(prefix="/v1/tokens", tags=["access"])

_MOST = 2**53 - 1
"""Largest integer that all JSON readers represent exactly."""
_MOST_SECONDS = 100 * 365 * 24 * 3600
_Owner = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}$")]


class QuotaDraft(Draft):
    """Null: no limit."""

    running_jobs: int | None = Field(default=None, ge=1, le=_MOST)
    queued_jobs: int | None = Field(default=None, ge=0, le=_MOST)
    stored_bytes: int | None = Field(default=None, ge=0, le=_MOST)


class TokenDraft(Draft):
    name: str = Field(
        min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$", description="Description for people."
    )
    owner: _Owner | None = Field(
        default=None, description="Owner of the jobs and models that it creates; null: the caller."
    )
    scopes: list[Scope] = Field(
        default=[Scope.READ, Scope.SUBMIT],
        min_length=1,
        max_length=len(Scope),
        description="read: see your own models, jobs and artifacts, and the fleet. submit: upload, tune, cancel, "
        "import records. admin: see the objects of all owners, and create tokens. No scope includes another.",
    )
    expires_in_seconds: int | None = Field(default=None, ge=1, le=_MOST_SECONDS)
    expires_at: AwareDatetime | None = Field(
        default=None, description="Set this or expires_in_seconds; with neither, the token does not expire."
    )
    quota: QuotaDraft = Field(default_factory=QuotaDraft)


@router.post(
    "",
    operation_id="create_token",
    status_code=201,
    response_model=schemas.NewToken,
    responses=problems.responses(413),
)
def create(services: ServicesDep, principal: Admin, draft: TokenDraft) -> schemas.NewToken:
    """Create a token. Only this response contains its text."""
    now = datetime.now(UTC)
    with services.database.transaction() as session:
        token, text = tokens.create(
            session,
            name=draft.name,
            owner=draft.owner or principal.owner,
            scopes=set(draft.scopes),
            quota=Quota(**draft.quota.model_dump()),
            expires_at=_expiry(draft, now),
            now=now,
        )
    return schemas.NewToken(**_view(token, now).model_dump(), token=text)


@router.get("", operation_id="list_tokens", response_model=schemas.TokenPage)
def listing(
    services: ServicesDep,
    _principal: Admin,
    owner: Annotated[str | None, Query(max_length=100)] = None,
    limit: LimitParam = 50,
    page_token: PageTokenParam = None,
) -> schemas.TokenPage:
    """List all tokens, newest first, including revoked and expired ones."""
    with services.database.reading() as session:
        found, following = tokens.page(session, owner=owner, limit=limit, page_token=page_token)
    now = datetime.now(UTC)
    return schemas.TokenPage(tokens=[_view(token, now) for token in found], next_page_token=following)


@router.get("/self", operation_id="get_own_token", response_model=schemas.Caller)
def own(services: ServicesDep, principal: PrincipalDep) -> schemas.Caller:
    """Get the caller's owner, scopes, quota and usage. Needs no scope."""
    token_id = principal.token_id
    with services.database.reading() as session:
        token = tokens.get(session, token_id) if token_id else None
        usage = schemas.Usage(
            running_jobs=quotas.jobs_of(session, token_id, *LEASED_STATES),
            queued_jobs=quotas.jobs_of(session, token_id, JobState.QUEUED),
            stored_bytes=quotas.stored_bytes(session, principal.owner),
        )
    return schemas.Caller(
        owner=principal.owner,
        scopes=sorted(principal.scopes),
        quota=shared.fill(schemas.Quota, principal.quota),
        usage=usage,
        token=_view(token, datetime.now(UTC)) if token else None,
    )


@router.get("/{token_id}", operation_id="get_token", response_model=schemas.Token, responses=problems.responses(404))
def one(services: ServicesDep, _principal: Admin, token_id: str) -> schemas.Token:
    """Get a token."""
    with services.database.reading() as session:
        return _view(tokens.get(session, token_id), datetime.now(UTC))


@router.delete(
    "/{token_id}", operation_id="revoke_token", response_model=schemas.Token, responses=problems.responses(404)
)
def revoke(services: ServicesDep, _principal: Admin, token_id: str) -> schemas.Token:
    """Revoke the token and its browser sessions. Its jobs continue."""
    now = datetime.now(UTC)
    with services.database.transaction() as session:
        revoked = tokens.revoke(session, token_id, now=now)
    return _view(revoked, now)


def _expiry(draft: TokenDraft, now: datetime) -> datetime | None:
    if draft.expires_at is not None and draft.expires_in_seconds is not None:
        raise errors.InvalidRequest("expires_at and expires_in_seconds exclude each other", hint="Set one of them.")
    if draft.expires_in_seconds is not None:
        return now + timedelta(seconds=draft.expires_in_seconds)
    latest = now + timedelta(seconds=_MOST_SECONDS)
    if draft.expires_at is not None and not now < draft.expires_at < latest:
        raise errors.InvalidRequest(
            f"expires_at {draft.expires_at.isoformat()} is not within the next hundred years",
            hint="Omit it for a token that does not expire.",
        )
    return draft.expires_at


def _view(token: Token, now: datetime) -> schemas.Token:
    active = token.revoked_at is None and (token.expires_at is None or token.expires_at > now)
    return shared.fill(schemas.Token, token, scopes=sorted(token.scopes), active=active)
