"""Route that creates models of a single operator."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field, StrictInt

from api import problems
from api.auth import Submitter
from api.jobs.drafts import Draft
from api.models import schemas, uploading
from api.services import Services, ServicesDep
from domain.models import Model
from domain.tokens import Principal
from tuner.search import operators
from tuner.search.operators import CheckedOperator, OperatorSpec

router = APIRouter(prefix="/v1", tags=["models"])

_Sizes = Annotated[list[StrictInt], Field(max_length=16)]


class OperatorDraft(Draft):
    operator: str = Field(max_length=100, json_schema_extra={"enum": list(operators.OPERATORS)})
    shapes: dict[Annotated[str, Field(max_length=100)], _Sizes] = Field(
        max_length=8,
        description="Of x and w (batch_matmul: a and b). dense: w is [outputs, features]; convolutions: "
        "w is [outputs, channels / groups, kernel…]. w is constant, with seeded values.",
    )
    dtype: str = Field(default=operators.DTYPE, max_length=100, json_schema_extra={"enum": [operators.DTYPE]})
    attributes: dict[Annotated[str, Field(max_length=100)], StrictInt | _Sizes] = Field(
        default_factory=dict,
        max_length=8,
        description="strides, padding, dilation and groups of convolutions: one number, or one per axis.",
    )
    name: str | None = Field(default=None, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")


@router.post(
    "/models:operator",
    operation_id="make_operator",
    status_code=201,
    response_model=schemas.Model,
    responses={
        200: {"model": schemas.Model, "description": "This operator already exists; its name is unchanged."},
        **problems.responses(413, 422, 503),
    },
)
def make(services: ServicesDep, principal: Submitter, response: Response, draft: OperatorDraft) -> schemas.Model:
    """Create a model of one operator, to be tuned like any other."""
    spec = OperatorSpec(operator=draft.operator, shapes=draft.shapes, dtype=draft.dtype, attributes=draft.attributes)
    operator = operators.check(spec)
    model, created = _made(services, principal, operator, draft.name or operator.name)
    response.status_code = 201 if created else 200
    return schemas.model(model)


def _made(services: Services, principal: Principal, operator: CheckedOperator, name: str) -> tuple[Model, bool]:
    with tempfile.TemporaryDirectory(prefix="tunesmith-operator-") as folder:
        path = Path(folder) / "operator.onnx"
        services.make_operator(operator, path)
        with path.open("rb") as file:
            return uploading.keep(services, principal, name[:200], iter(lambda: file.read(1 << 20), b""))
