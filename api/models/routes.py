"""Routes for uploading, reading and deleting models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api import problems, uploads
from api import schemas as shared
from api.auth import Reader, Submitter
from api.models import schemas, uploading
from api.paging import LimitParam, PageTokenParam
from api.services import ServicesDep
from domain import errors
from domain.models import Model, ModelFormat
from storage import deletion, models, owners

router = APIRouter(prefix="/v1/models", tags=["models"])

_Name = Annotated[
    str,
    Query(
        min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$", description="Display name; need not be unique."
    ),
]
_Format = Annotated[
    ModelFormat,
    Query(
        alias="format",
        description="onnx, or irmodule: one unscheduled tensor function as tvm.ir.save_json of TVM 0.27 writes it.",
    ),
]
_BODY = uploads.body(
    "The bytes of one .onnx file, or of one uncompressed tar archive of an .onnx file and the external files with its "
    "weights; or the text of one IRModule."
)


@router.put(
    "",
    operation_id="upload_model",
    status_code=201,
    response_model=schemas.Model,
    openapi_extra=_BODY,
    responses={
        200: {"model": schemas.Model, "description": "You already have this model; its name is unchanged."},
        **problems.responses(413, 422, 503),
    },
)
async def upload(
    request: Request,
    response: Response,
    services: ServicesDep,
    principal: Submitter,
    name: _Name = "model",
    model_format: _Format = ModelFormat.ONNX,
) -> schemas.Model:
    """Upload a model: the request body is the file, which is streamed to the store."""

    def keep(chunks: Iterator[bytes], unwanted: Callable[[], bool]) -> tuple[Model, bool]:
        return uploading.keep(services, principal, name, chunks, model_format, unwanted)

    limit = uploading.limit(services, model_format)
    model, created = await uploads.received(request, services, principal, keep, limit=limit, noun="model")
    response.status_code = 201 if created else 200
    return schemas.model(model)


@router.get("", operation_id="list_models", response_model=schemas.ModelPage)
def listing(
    services: ServicesDep,
    principal: Reader,
    name: Annotated[str | None, Query(max_length=200, description="Part of the name; case-insensitive.")] = None,
    limit: LimitParam = 50,
    page_token: PageTokenParam = None,
) -> schemas.ModelPage:
    """List the uploaded models, newest first."""
    with services.database.reading() as session:
        found, following = models.page(
            session, owner=owners.visible(principal), name=name, limit=limit, page_token=page_token
        )
    return schemas.ModelPage(models=[schemas.model(model) for model in found], next_page_token=following)


@router.get("/{model}", operation_id="get_model", response_model=schemas.Model, responses=problems.responses(404, 410))
def one(services: ServicesDep, principal: Reader, model: str) -> schemas.Model:
    """Get a model by id or digest."""
    with services.database.reading() as session:
        return schemas.model(owners.model(session, model, principal))


@router.delete(
    "/{model}",
    operation_id="delete_model",
    response_model=shared.Deletion,
    responses=problems.responses(404, 409),
)
def remove(services: ServicesDep, principal: Submitter, model: str) -> shared.Deletion:
    """Delete a model and its artifacts; its jobs and records are kept.

    If others have uploaded the same bytes, only your ownership ends. An admin deletes the model for everyone. A model
    with unfinished jobs cannot be deleted. The bytes are removed later; requests for them get 410.
    """
    with services.database.transaction() as session:
        try:
            found = owners.model(session, model, principal)
        except errors.ModelDeleted:
            return shared.Deletion(id=models.get(session, model).id, gone=True)
        owner = owners.visible(principal)
        gone = deletion.delete_model(session, found, owner=owner, now=datetime.now(UTC))
    return shared.Deletion(id=found.id, gone=gone)
