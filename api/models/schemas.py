"""JSON schemas of models."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from api import schemas as shared
from domain import errors
from domain.digests import ModelDigest
from domain.models import Model as DomainModel
from domain.models import ModelFacts, ModelFormat


class Tensor(BaseModel):
    name: str
    dtype: str = Field(description="numpy name: float32, int64, …")
    shape: list[int | str | None] = Field(description="Sizes; a dynamic dimension is its symbol, or null.")


class Model(BaseModel):
    id: str
    digest: ModelDigest = Field(description="sha256 of the uploaded bytes, hex.")
    name: str
    format: ModelFormat
    bytes: int
    inputs: list[Tensor]
    outputs: list[Tensor]
    opset: int = Field(description="ONNX opset; 0 for an IRModule.")
    ir_version: int
    operators: dict[str, int] = Field(description="Operators with their counts; for an IRModule its function.")
    parameters: int = Field(description="Number of scalar weights.")
    warnings: list[shared.Notice] = Field(
        description="unsupported_operators: operators that no engine imports, unless a plugin of the service does."
    )
    created_at: datetime


class ModelPage(BaseModel):
    models: list[Model] = Field(description="Newest first.")
    next_page_token: str | None = Field(description="Null on the last page.")


def model(value: DomainModel) -> Model:
    return shared.fill(Model, value.facts, value, bytes=value.size_bytes, warnings=_warnings(value.facts))


def _warnings(facts: ModelFacts) -> list[errors.TunesmithError]:
    missing = facts.not_imported
    if not missing:
        return []
    shown = ", ".join(f"{name} ({count}×)" for name, count in missing.items())
    message = f"no engine imports {shown}, unless a plugin of the service does; jobs for this model will fail"
    return [errors.UnsupportedOperators(message, details={"operators": missing})]
