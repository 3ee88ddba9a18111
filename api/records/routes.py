"""Routes of records: queries, import, export in native formats, and removal of imported records."""

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
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api import problems, uploads
from api import schemas as shared
from api.auth import KeyHeader, Reader, Submitter
from api.paging import LimitParam, PageTokenParam
from api.records import origins, record_files
from api.services import Services, ServicesDep
from domain import errors
from domain.jobs import Tuner
from domain.records import ImportedRecord, ImportState, Provenance
from domain.tokens import Principal
from storage import idempotency, imports, owners, record_pages
from storage.record_filters import RecordFilter
from storage.record_pages import AnyRecord
from tuner.native.importing import RecordOrigin

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
    provenance: Provenance
    worker: str | None = Field(description="The worker that measured it; null for an imported record.")
    owner: str | None = Field(description="Who imported it; null for a measured record.")
    id: str | None = Field(description="Of an imported record, to invalidate or delete it.")
    state: ImportState | None = Field(description="What became of an imported record.")
    latencies: list[float] = Field(
        description="Seconds, one per repeat; empty when the trial failed. Those of imported records are only claimed."
    )
    latency: float | None = Field(description="Mean of the latencies, used for ranking.")
    error: str | None
    error_message: str | None = Field(description="Of an imported record: why it failed here or was rejected.")
    trial_number: int | None = Field(description="Null for an imported record.")
    job: str | None = Field(
        description="The job that measured it, or tried it if it was imported; null if it has another owner."
    )
    finished_at: datetime


class RecordPage(BaseModel):
    records: list[Record] = Field(description="In the order of storage, measured ones first.")
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
        description="Schedules that the caller has imported already, or that were measured, for the same workload, "
        "target, device and toolchain."
    )
    refused_count: int
    refused: list[Refusal] = Field(description="The first 100.")
    places: list[Place] = Field(
        description="Target, device and toolchain of the file's records, with their numbers, including known ones."
    )


class Changed(BaseModel):
    records: int = Field(description="Number of imported records that were changed.")


class ImportsQuery(BaseModel):
    """Filters of imported records; all that are set must match, and at least one must be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: list[Annotated[str, StringConstraints(pattern=r"^i-[0-9]{1,18}$")]] = Field(
        default=[], max_length=200, description="Ids of records."
    )
    tuner: str | None = Field(default=None, max_length=100, description="autotvm, ansor or metaschedule.")
    target: str | None = Field(default=None, max_length=1000, description="As for the list of records.")
    device: str | None = Field(default=None, max_length=1000)
    toolchain: str | None = Field(default=None, max_length=1000)
    workload: str | None = Field(default=None, max_length=100_000, description="Exact workload key.")
    state: ImportState | None = Field(default=None, description="What became of them.")
    owner: str | None = Field(default=None, max_length=100, description="For admins: whose; by default everybody's.")


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
    provenance: Annotated[
        Provenance | None,
        Query(description="By default both, but with format=native only measured records."),
    ] = None,
    owner: Annotated[str | None, Query(max_length=100, description="Who imported them.")] = None,
    state: Annotated[ImportState | None, Query(description="What became of imported records.")] = None,
    format: Literal["json", "native"] = "json",  # noqa: A002 - the parameter's name in the API
    limit: LimitParam = 50,
    page_token: PageTokenParam = None,
) -> RecordPage | StreamingResponse:
    """List the records that match all filters, including failed trials. Imported ones are the caller's own."""
    chosen = origins.tuner(tuner) if tuner is not None else None
    if owner is not None or state is not None:
        provenance = Provenance.IMPORTED
    if job is not None:
        with services.database.reading() as session:
            owners.job(session, job, principal)
    wanted = RecordFilter(
        workload_key=workload,
        target=origins.wanted_target(services, target),
        device_key=device,
        toolchain=toolchain,
        tuner=chosen,
        job_id=job,
        valid_only=valid_only,
        provenance=provenance or (Provenance.MEASURED if format == "native" else None),
        owner=owners.whose(principal, owner),
        state=state,
    )
    if format == "native":
        return _native(services, chosen, wanted)
    with services.database.reading() as session:
        found, following = record_pages.page(session, wanted, limit=limit, page_token=page_token)
        own = owners.jobs_of(session, {record.job_id for record in found if record.job_id}, principal)
    return RecordPage(records=[_view(record, own) for record in found], next_page_token=following)


def _native(services: Services, chosen: Tuner | None, wanted: RecordFilter) -> StreamingResponse:
    if chosen is None:
        raise errors.InvalidRequest("format=native needs a tuner", hint="Set the tuner, for example tuner=autotvm.")
    packed = chosen is Tuner.METASCHEDULE
    write = record_files.database_tar if packed else record_files.lines
    imported = "-imported" if wanted.provenance is Provenance.IMPORTED else ""
    name = f"{chosen.value}{imported}.{'tar' if packed else 'json'}"
    return StreamingResponse(
        write(services.database, wanted),
        media_type=ARCHIVE if packed else LINES,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@router.post(
    "",
    operation_id="import_records",
    response_model=Imported,
    openapi_extra=uploads.body("Native lines; for metaschedule a tar of its two files."),
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
    """Store native records as candidates that the caller's jobs measure first; repeating the request changes nothing.

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
            return await anyio.to_thread.run_sync(
                _store, services, principal.owner, origin, file, repeated, limiter=limiter
            )


@router.delete("", operation_id="delete_imported_records", responses=problems.responses(403))
def remove(services: ServicesDep, principal: Submitter, wanted: Annotated[ImportsQuery, Query()]) -> Changed:
    """Delete imported records of the caller. Schedules that a worker has measured keep their measured records."""
    with services.database.transaction() as session:
        return Changed(records=imports.remove(session, _imports(services, principal, wanted)))


@router.post(":invalidate", operation_id="invalidate_imported_records", responses=problems.responses(403))
def invalidate(services: ServicesDep, principal: Submitter, wanted: Annotated[ImportsQuery, Query()]) -> Changed:
    """Withdraw untried imported records of the caller: no job tries them, and importing them again changes nothing."""
    with services.database.transaction() as session:
        return Changed(records=imports.invalidate(session, _imports(services, principal, wanted)))


def _imports(services: Services, principal: Principal, wanted: ImportsQuery) -> RecordFilter:
    """Raises InvalidRequest without a filter, MissingScope for another owner's records, and UnknownTuner."""
    if not any(wanted.model_dump().values()):
        raise errors.InvalidRequest("no filter is set", hint="Name the records: by id, tuner, target, state and so on.")
    return RecordFilter(
        workload_key=wanted.workload,
        target=origins.wanted_target(services, wanted.target),
        device_key=wanted.device,
        toolchain=wanted.toolchain,
        tuner=origins.tuner(wanted.tuner) if wanted.tuner is not None else None,
        provenance=Provenance.IMPORTED,
        owner=owners.whose(principal, wanted.owner),
        state=wanted.state,
        ids=tuple(int(each.removeprefix("i-")) for each in wanted.id),
    )


def _store(
    services: Services,
    owner: str,
    origin: Callable[[], RecordOrigin],
    file: IO[bytes],
    repeated: idempotency.IdempotentRequest | None,
) -> Imported:
    known = _answered(services, repeated)
    if known is not None:
        return known
    measured = origin()
    file.flush()
    taken = record_files.take(services.database, measured, Path(file.name), services.read_records, owner=owner)
    report = _imported(taken)
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


def _view(record: AnyRecord, own: Collection[str]) -> Record:
    job = record.job_id if record.job_id in own else None
    if isinstance(record, ImportedRecord):
        return shared.fill(
            Record,
            record.key,
            record,
            provenance=Provenance.IMPORTED,
            worker=None,
            id=f"i-{record.id}",
            latency=record.latency,
            error_message=record.message,
            trial_number=None,
            job=job,
        )
    return shared.fill(
        Record,
        record.key,
        record,
        provenance=Provenance.MEASURED,
        worker=record.worker_id,
        owner=None,
        id=None,
        state=None,
        latency=record.latency,
        job=job,
    )
