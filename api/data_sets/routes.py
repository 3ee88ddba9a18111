"""Routes for uploading, reading and deleting data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api import problems, uploads
from api import schemas as shared
from api.auth import Reader, Submitter
from api.data_sets import schemas, uploading
from api.paging import LimitParam, PageTokenParam
from api.services import ServicesDep
from domain import errors
from domain.data_sets import DataSet
from storage import data_sets

router = APIRouter(prefix="/v1/datasets", tags=["data sets"])

_Name = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Unique among your data sets; letters, digits, dots, hyphens and underscores. Default: `data-` "
        "and the start of the digest.",
    ),
]
_BODY = uploads.body(
    "The bytes of an .npz file as numpy.savez writes it: one array of numbers per input of the model, with the input's "
    "name and dtype, and optionally `labels`. The first axis of each array is the rows."
)


@router.post(
    "",
    operation_id="add_data_set",
    status_code=201,
    response_model=schemas.DataSet,
    openapi_extra=_BODY,
    responses={
        200: {"model": schemas.DataSet, "description": "You already have this file; its name is unchanged."},
        **problems.responses(409, 413, 422, 503),
    },
)
async def add(
    request: Request, response: Response, services: ServicesDep, principal: Submitter, name: _Name = None
) -> schemas.DataSet:
    """Add a data set: the request body is the file. Its rows are never in a bundle or a log.

    Jobs that name it as `data` compare builds on its rows, judge narrower precisions by them, and calibrate these.
    """

    def keep(chunks: Iterator[bytes], unwanted: Callable[[], bool]) -> tuple[DataSet, bool]:
        return uploading.keep(services, principal, name, chunks, unwanted)

    limit = services.settings.max_model_bytes
    found, created = await uploads.received(request, services, principal, keep, limit=limit, noun="data set")
    response.status_code = 201 if created else 200
    return schemas.data_set(found)


@router.get("", operation_id="list_data_sets", response_model=schemas.DataSetPage)
def listing(
    services: ServicesDep, principal: Reader, limit: LimitParam = 50, page_token: PageTokenParam = None
) -> schemas.DataSetPage:
    """List your data sets, newest first; admins see those of all owners."""
    with services.database.reading() as session:
        found, following = data_sets.page(session, principal, limit=limit, page_token=page_token)
    return schemas.DataSetPage(datasets=[schemas.data_set(each) for each in found], next_page_token=following)


@router.get(
    "/{data_set}",
    operation_id="get_data_set",
    response_model=schemas.DataSet,
    responses=problems.responses(404, 410),
)
def one(services: ServicesDep, principal: Reader, data_set: str) -> schemas.DataSet:
    """Get a data set by id or name."""
    with services.database.reading() as session:
        return schemas.data_set(data_sets.get(session, data_set, principal))


@router.delete(
    "/{data_set}",
    operation_id="delete_data_set",
    response_model=shared.Deletion,
    responses=problems.responses(404, 409),
)
def remove(services: ServicesDep, principal: Submitter, data_set: str) -> shared.Deletion:
    """Delete a data set by id or name. One with unfinished jobs cannot be deleted. The bytes are removed later."""
    with services.database.transaction() as session:
        try:
            found = data_sets.get(session, data_set, principal)
        except errors.DataSetDeleted:
            return shared.Deletion(id=data_set, gone=True)
        data_sets.delete(session, found, now=datetime.now(UTC))
    return shared.Deletion(id=found.id, gone=True)
