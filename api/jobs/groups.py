"""Routes of groups of jobs: state counts, and cancellation of a whole group."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query

from api import problems
from api.auth import Reader, Submitter
from api.jobs import schemas
from api.paging import LimitParam, PageTokenParam
from api.services import ServicesDep
from domain import errors
from storage import groups, jobs, owners
from tunesmith import job_draft

router = APIRouter(prefix="/v1/groups", tags=["jobs"])

_AT_ONCE = 50
"""Jobs canceled in one transaction, to let other writers in between."""
_Name = Annotated[str, Path(max_length=100, pattern=job_draft.GROUP_NAME)]


@router.get("", operation_id="list_groups", response_model=schemas.GroupPage)
def listing(
    services: ServicesDep,
    principal: Reader,
    owner: Annotated[
        str | None, Query(max_length=100, description="Admins: only objects of this owner; default all.")
    ] = None,
    limit: LimitParam = 50,
    page_token: PageTokenParam = None,
) -> schemas.GroupPage:
    """List the groups, the one with the newest job first. ``GET /v1/jobs?group=`` lists a group's jobs."""
    with services.database.reading() as session:
        found, following = groups.page(
            session, owner=owners.whose(principal, owner), limit=limit, page_token=page_token
        )
    return schemas.GroupPage(groups=[schemas.group(one) for one in found], next_page_token=following)


@router.post(
    "/{name}:cancel",
    operation_id="cancel_group",
    status_code=202,
    response_model=schemas.Group,
    responses=problems.responses(404),
)
def cancel(
    services: ServicesDep,
    principal: Submitter,
    name: _Name,
    owner: Annotated[str | None, Query(max_length=100, description="Admins: the owner; default the caller.")] = None,
) -> schemas.Group:
    """Cancel all unfinished jobs of the group, as ``POST /v1/jobs/{id}:cancel`` does."""
    whose = owners.whose(principal, owner or principal.owner) or principal.owner
    with services.database.reading() as session:
        groups.get(session, name, owner=whose)
        left = groups.unfinished(session, name, owner=whose)
    for start in range(0, len(left), _AT_ONCE):
        with services.database.transaction() as session:
            for job_id in left[start : start + _AT_ONCE]:
                with contextlib.suppress(errors.JobAlreadyFinished):
                    jobs.request_cancel(session, job_id, now=datetime.now(UTC))
    with services.database.reading() as session:
        return schemas.group(groups.get(session, name, owner=whose))
