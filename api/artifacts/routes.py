"""Routes of artifacts: descriptions, downloads, and the best artifact of a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session
from starlette.types import Receive, Scope, Send

from api import problems
from api import schemas as shared
from api.artifacts import schemas
from api.auth import Reader, Submitter
from api.jobs import requests, shapes
from api.middleware import conditional
from api.paging import LimitParam, PageTokenParam
from api.services import ServicesDep
from domain import errors, sizes, targets
from domain.artifacts import Artifact
from domain.jobs import Precision
from domain.sizes import Choice
from domain.tokens import Principal
from storage import artifacts, deletion, owners, workers

router = APIRouter(prefix="/v1", tags=["artifacts"])

_Target = Annotated[
    str | None,
    Query(max_length=1000, description="'native', or a TVM target; a target without a thread count matches any."),
]
_Device = Annotated[str | None, Query(max_length=500, description="Device key.")]
_PUBLISHED = [each.value for each in Precision if each is not Precision.AUTO]

_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bundle, a tar file.", "content": {"application/x-tar": {}}},
    206: {"description": "The range that the Range header requests.", "content": {"application/x-tar": {}}},
    304: {"description": "The bundle matches If-None-Match."},
}


@router.get(
    "/artifacts", operation_id="list_artifacts", response_model=schemas.ArtifactPage, responses=problems.responses(404)
)
def listing(
    services: ServicesDep,
    principal: Reader,
    model: Annotated[str | None, Query(max_length=200, description="Id or digest.")] = None,
    target: _Target = None,
    device: _Device = None,
    precision: Annotated[str | None, Query(max_length=100, json_schema_extra={"enum": _PUBLISHED})] = None,
    limit: LimitParam = 50,
    page_token: PageTokenParam = None,
) -> schemas.ArtifactPage:
    """List the published bundles, newest first."""
    if precision is not None:
        requests.known(precision, _PUBLISHED, "precision", errors.UnknownPrecision)
    with services.database.reading() as session:
        found, following = artifacts.page(
            session,
            owner=owners.visible(principal),
            model_digest=owners.model(session, model, principal).digest if model else None,
            target=_target(session, target) if target else None,
            device_key=device,
            precision=precision,
            limit=limit,
            page_token=page_token,
        )
        own = owners.jobs_of(session, [one.job_id for one in found], principal)
    return schemas.ArtifactPage(artifacts=[schemas.artifact(one, jobs=own) for one in found], next_page_token=following)


@router.get(
    "/artifacts/{artifact}",
    operation_id="get_artifact",
    response_model=schemas.Artifact,
    responses=problems.responses(404, 410),
)
def one(services: ServicesDep, principal: Reader, artifact: str) -> schemas.Artifact:
    """Get a bundle's target, origin and measurements, by id or digest."""
    with services.database.reading() as session:
        return _view(session, owners.artifact(session, artifact, principal), principal)


@router.get(
    "/artifacts/{artifact}/download",
    operation_id="download_artifact",
    response_class=Response,
    responses={**_BYTES, **problems.responses(404, 410, 416, 503)},
)
def download(services: ServicesDep, principal: Reader, request: Request, artifact: str) -> Response:
    """Download the bundle. Its ETag is its sha256; If-None-Match, Range and If-Range are supported."""
    with services.database.reading() as session:
        found = owners.artifact(session, artifact, principal)
    file = services.blobs.open(found.digest)
    return respond(request, file, digest=found.digest, size=found.size_bytes, file_name=f"{found.id}.tar")


@router.delete(
    "/artifacts/{artifact}",
    operation_id="delete_artifact",
    response_model=shared.Deletion,
    responses=problems.responses(404),
)
def remove(services: ServicesDep, principal: Submitter, artifact: str) -> shared.Deletion:
    """Delete a bundle that one of your jobs published; the job's report and records are kept.

    It is no longer a candidate for the best artifact. The bytes are removed later; requests for them get 410.
    """
    with services.database.transaction() as session:
        try:
            found = owners.artifact(session, artifact, principal)
        except errors.ArtifactDeleted:
            return shared.Deletion(id=artifacts.get(session, artifact).id, gone=True)
        if not owners.jobs_of(session, [found.job_id], principal):
            raise errors.Forbidden(
                f"artifact {found.id} was published by another owner's job",
                hint="Ask its owner or an admin to delete it. You may delete the model, which you own too.",
            )
        deletion.delete_artifact(session, found, now=datetime.now(UTC))
    return shared.Deletion(id=found.id, gone=True)


@router.get("/best", operation_id="get_best", response_model=schemas.Best, responses=problems.responses(404))
def best(
    services: ServicesDep,
    principal: Reader,
    model: Annotated[str, Query(min_length=1, max_length=200, description="Id or digest.")],
    target: _Target = None,
    device: _Device = None,
    toolchain: Annotated[
        str | None, Query(max_length=200, description="A toolchain or a prefix of one: relay, relay/tvm-0.19.0.")
    ] = None,
    precision: Annotated[
        str,
        Query(
            max_length=100,
            description="Default f32; auto: the fastest of any precision.",
            json_schema_extra={"enum": list(Precision)},
        ),
    ] = Precision.F32,
    input_shape: Annotated[
        list[str] | None,
        Query(max_length=256, description="NAME:1,3,224,224; repeatable. Other inputs may have any shape."),
    ] = None,
) -> schemas.Best:
    """Get the verified bundle of this model, target and precision with the smallest median latency."""
    wanted_shapes = shapes.parse(input_shape or [])
    wanted_precision = requests.member(Precision, precision, "precision", errors.UnknownPrecision)
    with services.database.reading() as session:
        digest = owners.model(session, model, principal).digest
        wanted = _target(session, target) if target else None
        found = artifacts.best(
            session,
            model_digest=digest,
            target=wanted,
            device_key=device,
            toolchain=toolchain,
            precision=None if wanted_precision is Precision.AUTO else wanted_precision.value,
            input_shapes=wanted_shapes,
        )
        view = _view(session, found, principal)
    return schemas.Best(artifact=view, why=_why(found, wanted, device))


def _view(session: Session, artifact: Artifact, principal: Principal) -> schemas.Artifact:
    return schemas.artifact(artifact, jobs=owners.jobs_of(session, [artifact.job_id], principal))


def _target(session: Session, text: str) -> str:
    """Parse the target. Raises UnknownTarget, also if 'native' is ambiguous."""
    wanted = targets.canonical(text)
    bare, threads = targets.split_threads(wanted)
    if bare != targets.NATIVE:
        return wanted
    natives = sorted({worker.native_target.text for worker in workers.known(session)})
    if len(natives) != 1:
        what = f"is ambiguous: {', '.join(natives)}" if natives else "is unknown until a worker has started"
        raise errors.UnknownTarget(f"target 'native' {what}", hint="Set the target.", details={"near_matches": natives})
    return natives[0] + threads


def _why(found: Artifact, target: str | None, device: str | None) -> str:
    median = found.report.timings[found.report.published].median * 1000
    scope = "".join(
        [f" for target {target}" if target else " for any target", f" on device {device}" if device else ""]
    )
    shaped: Mapping[str, Sequence[Choice]] = sizes.choices_of(found.sizes) or found.input_shapes
    made_for = " ".join(f"{name}:{','.join(map(sizes.shown, shape))}" for name, shape in sorted(shaped.items()))
    return (
        f"The smallest median of this model's verified {found.precision} artifacts{scope}: {median:.3f} ms "
        f"({found.report.published} on {found.device_key}{', for ' if made_for else ''}{made_for})."
    )


_CHUNK = 256 * 1024
_FOR_EVER = "private, max-age=31536000, immutable"
"""The URL contains the digest, so its content never changes."""
_ONE_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def respond(request: Request, file: BinaryIO, *, digest: str, size: int, file_name: str) -> Response:
    """Return the response, which closes ``file``. A request for several ranges gets the whole content, as the RFC
    allows."""
    etag = f'"{digest}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": _FOR_EVER,
        "Vary": "Authorization, Cookie",
        "Content-Disposition": f'attachment; filename="{file_name}"',
    }
    if conditional.etag_matches(request.headers.get("if-none-match", ""), etag):
        file.close()
        return Response(status_code=304, headers=headers)
    part = _range(request, etag, size)
    if part == ():
        file.close()
        raise HTTPException(
            416,
            f"the requested range is outside the artifact's {size} bytes",
            headers={"Content-Range": f"bytes */{size}", "ETag": etag},
        )
    first, last = part or (0, size - 1)
    headers["Content-Length"] = str(last - first + 1)
    if part:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return _FilePart(file, first, last, status_code=206 if part else 200, headers=headers)


class _FilePart(StreamingResponse):
    """Response that closes the file in any case: at its end, on a disconnect, and for HEAD."""

    media_type = "application/x-tar"

    def __init__(self, file: BinaryIO, first: int, last: int, *, status_code: int, headers: dict[str, str]) -> None:
        super().__init__(_read(file, first, last), status_code=status_code, headers=headers)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


def _range(request: Request, etag: str, size: int) -> tuple[int, int] | tuple[()] | None:
    """Return the first and last byte; None for the whole content, and an empty tuple for an unsatisfiable range."""
    match = _ONE_RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if match is None or match.group(0) == "bytes=-" or request.headers.get("if-range", etag) != etag:
        return None
    first, last = match.groups()
    if not first:
        wanted = min(int(last), size)
        return (size - wanted, size - 1) if wanted else ()
    start, end = int(first), min(int(last or size), size - 1)
    if last and int(last) < start:
        return None
    return (start, end) if start < size else ()


def _read(file: BinaryIO, first: int, last: int) -> Iterator[bytes]:
    file.seek(first)
    left = last - first + 1
    while left > 0 and (chunk := file.read(min(_CHUNK, left))):
        left -= len(chunk)
        yield chunk
