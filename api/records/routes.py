"""Routes of records: queries, import and export in native formats."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable, Collection
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Literal

import anyio
from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from api import problems
from api import schemas as shared
from api.auth import KeyHeader, Reader, Submitter
from api.paging import LimitParam, PageTokenParam
from api.records import origins, record_files
from api.services import Services, ServicesDep
from domain import errors
from domain import records as domain_records
from domain.jobs import Tuner
from domain.targets import NATIVE
from storage import idempotency, owners, record_pages
from storage.record_pages import RecordFilter
from tuner.native.importing import IMPORTED, RecordOrigin

router = APIRouter(prefix="/v1/records", tags=["records"])

MOST_BYTES = 1024**3
LINES, ARCHIVE = "application/x-ndjson", "application/x-tar"

_Text = Annotated[str | None, Query(max_length=1000)]
_Key = Annotated[str | None, Query(max_length=100_000, description="Exact workload key.")]
_Target = Annotated[
    str | None,
    Query(
        max_length=1000,
        description="'llvm -mcpu=znver3', or with its thread count: 'llvm -mcpu=znver3 -num-cores=2'; "
        "'native' is the target of the live workers.",
    ),
]
_Tuner = Annotated[
    str, Query(max_length=100, json_schema_extra={"enum": [each for each in Tuner if each != Tuner.AUTO]})
]


class Record(BaseModel):
    workload_key: str
    target: str
    device_key: str
    toolchain: str
    tuner: str
    schedule: str = Field(description="The native line.")
    latencies: list[float] = Field(description="Seconds, one per repeat; empty when the trial failed.")
    latency: float | None = Field(description="Mean of the latencies, used for ranking.")
    error: str | None
    error_message: str | None
    trial_number: int
    job: str | None = Field(
        description="The job that measured it; null if it has another owner; 'imported:…' for imported records."
    )
    finished_at: datetime


class RecordPage(BaseModel):
    records: list[Record] = Field(description="In the order of storage.")
    next_page_token: str | None = Field(description="Null on the last page.")


class Refusal(BaseModel):
    file: str | None = Field(description="Which of MetaSchedule's two files.")
    line: int = Field(description="From 1.")
    reason: str


class Place(BaseModel):
    target: str
    device_key: str
    toolchain: str
    records: int


class Imported(BaseModel):
    imported: int
    known_already: int = Field(
        description="Schedules already stored for the same workload, target, device and toolchain."
    )
    refused_count: int
    refused: list[Refusal] = Field(description="The first 100.")
    places: list[Place] = Field(description="Tuner, target, device and toolchain of the imported records.")


@router.get(
    "",
    operation_id="list_records",
    response_model=RecordPage,
    responses={
        200: {
            "description": "One page as JSON; with format=native all records, as TVM reads them: JSON lines, "
            "for metaschedule a tar of database_workload.json and database_tuning_record.json.",
            "content": {
                LINES: {"schema": {"type": "string"}},
                ARCHIVE: {"schema": {"type": "string", "format": "binary"}},
            },
        },
        **problems.responses(404),
    },
)
def listing(
    services: ServicesDep,
    principal: Reader,
    tuner: Annotated[str | None, Query(max_length=100)] = None,
    target: _Target = None,
    device: _Text = None,
    toolchain: _Text = None,
    workload: _Key = None,
    job: _Text = None,
    valid_only: Annotated[bool, Query(description="Omit failed trials.")] = False,
    format: Literal["json", "native"] = "json",  # noqa: A002 - the parameter's name in the API
    limit: LimitParam = 50,
    page_token: PageTokenParam = None,
) -> RecordPage | StreamingResponse:
    """List the records that match all filters, including failed trials."""
    chosen = origins.tuner(tuner) if tuner is not None else None
    if job is not None and not job.startswith(IMPORTED):
        with services.database.reading() as session:
            owners.job(session, job, principal)
    wanted = RecordFilter(
        workload_key=workload,
        target=origins.native(services) if target == NATIVE else target,
        device_key=device,
        toolchain=toolchain,
        tuner=chosen,
        job_id=job,
        valid_only=valid_only,
    )
    if format == "native":
        return _native(services, chosen, wanted)
    with services.database.reading() as session:
        found, following = record_pages.page(session, wanted, limit=limit, page_token=page_token)
        own = owners.jobs_of(session, {record.job_id for record in found}, principal)
    return RecordPage(records=[_view(record, own) for record in found], next_page_token=following)


def _native(services: Services, chosen: Tuner | None, wanted: RecordFilter) -> StreamingResponse:
    if chosen is None:
        raise errors.InvalidRequest("format=native needs a tuner", hint="Set the tuner, for example tuner=autotvm.")
    packed = chosen is Tuner.METASCHEDULE
    write = record_files.database_tar if packed else record_files.lines
    name = f"{chosen.value}.{'tar' if packed else 'json'}"
    return StreamingResponse(
        write(services.database, wanted),
        media_type=ARCHIVE if packed else LINES,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@router.post(
    "",
    operation_id="import_records",
    response_model=Imported,
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "Native lines; for metaschedule a tar of its two files.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
    responses=problems.responses(413, 422),
)
async def take(
    request: Request,
    services: ServicesDep,
    principal: Submitter,
    tuner: _Tuner,
    target: _Target = None,
    threads: Annotated[
        int | None, Query(ge=1, le=1024, description="For lines whose target has no thread count.")
    ] = None,
    device: _Text = None,
    toolchain: _Text = None,
    idempotency_key: KeyHeader = None,
) -> Imported:
    """Store native records; repeating the request changes nothing.

    Device and toolchain default to those of the only live worker. A line of another target, thread count or TVM version
    than given, or implied, is rejected.
    """
    chosen = origins.tuner(tuner)
    origin = partial(
        origins.of_import, services, chosen, target=target, threads=threads, device=device, toolchain=toolchain
    )
    # Checked before the first byte is received: each import may need up to a gigabyte on disk.
    async with services.uploads.one(principal.owner) as limiter:
        with tempfile.NamedTemporaryFile(prefix="tunesmith-records-") as file:
            content = (tuner, target, threads, device, toolchain, await _receive(request.stream(), file, limiter))
            repeated = idempotency.IdempotentRequest.of(idempotency_key, principal.owner, "import", *content)
            return await anyio.to_thread.run_sync(_store, services, origin, file, repeated, limiter=limiter)


def _store(
    services: Services,
    origin: Callable[[], RecordOrigin],
    file: IO[bytes],
    repeated: idempotency.IdempotentRequest | None,
) -> Imported:
    known = _answered(services, repeated)
    if known is not None:
        return known
    measured = origin()
    file.flush()
    report = _imported(record_files.take(services.database, measured, Path(file.name), services.read_records))
    if repeated:
        with services.database.transaction() as session:
            repeated.remember(session, report.model_dump_json(), now=datetime.now(UTC))
    return report


def _answered(services: Services, request: idempotency.IdempotentRequest | None) -> Imported | None:
    """Return the stored response. Raises IdempotencyMismatch."""
    if request is None:
        return None
    with services.database.transaction() as session:
        answer = request.recall(session, now=datetime.now(UTC))
    return Imported.model_validate_json(answer) if answer else None


async def _receive(stream: AsyncIterator[bytes], file: IO[bytes], limiter: anyio.CapacityLimiter) -> str:
    """Receive the body and return its sha256."""
    digest, size = hashlib.sha256(), 0
    async for chunk in stream:
        size += len(chunk)
        if size > MOST_BYTES:
            raise errors.BlobTooLarge(f"more than {MOST_BYTES} bytes", hint="Split the file and import the parts.")
        digest.update(chunk)
        await anyio.to_thread.run_sync(file.write, chunk, limiter=limiter)
    return digest.hexdigest()


def _imported(report: record_files.Imported) -> Imported:
    places = [
        Place(target=target, device_key=device, toolchain=toolchain, records=count)
        for (target, device, toolchain), count in report.places.most_common()
    ]
    return shared.fill(Imported, report, places=places)


def _view(record: domain_records.Record, own: Collection[str]) -> Record:
    is_told = record.job_id in own or record.job_id.startswith(IMPORTED)
    return shared.fill(Record, record.key, record, latency=record.latency, job=record.job_id if is_told else None)
