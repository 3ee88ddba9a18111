"""JSON schemas of data sets."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from api import schemas as shared
from api.models.schemas import Tensor
from domain.data_sets import DataSet as DomainDataSet
from domain.digests import BlobDigest


class DataSet(BaseModel):
    id: str
    digest: BlobDigest = Field(description="sha256 of the uploaded bytes, hex.")
    name: str
    owner: str
    bytes: int
    rows: int
    arrays: list[Tensor] = Field(description="The first axis of each is the rows.")
    created_at: datetime


class DataSetPage(BaseModel):
    datasets: list[DataSet] = Field(description="Newest first.")
    next_page_token: str | None = Field(description="Null on the last page.")


def data_set(value: DomainDataSet) -> DataSet:
    return shared.fill(DataSet, value.facts, value, bytes=value.size_bytes)
