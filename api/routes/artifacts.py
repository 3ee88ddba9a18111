"""Published bundles: what they are, their bytes, and the best one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.orm import Session

from api import problems, schemas, views
from api.auth import Reader, Submitter
from api.jobs import choices, shapes
from api.paging import LimitParam, PageTokenParam
from api.services import ServicesDep
from api.transport import downloads
from domain import errors, targets
from domain.artifacts import Artifact
from domain.jobs import Precision
from domain.tokens import Principal
from storage import artifacts, deletion, owners, workers

router = APIRouter(prefix="/v1", tags=["artifacts"])

_Target = Annotated[
    str | None, Query(max_length=1000, description="'native', or a TVM target; without a thread count any will do.")
]
_Device = Annotated[str | None, Query(max_length=500, description="Device key.")]
_PUBLISHED = [each.value for each in Precision if each is not Precision.AUTO]

_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bundle, a tar file.", "content": {"application/x-tar": {}}},
    206: {"description": "The part that the Range header names.", "content": {"application/x-tar": {}}},
    304: {"description": "The If-None-Match header names this very bundle."},
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
    """The published bundles, newest first."""
    if precision is not None:
        choices.known(precision, _PUBLISHED, "precision", errors.UnknownPrecision)
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
    return schemas.ArtifactPage(artifacts=[views.artifact(one, jobs=own) for one in found], next_page_token=following)


@router.get(
    "/artifacts/{artifact}",
    operation_id="get_artifact",
    response_model=schemas.Artifact,
    responses=problems.responses(404, 410),
)
def one(services: ServicesDep, principal: Reader, artifact: str) -> schemas.Artifact:
    """What a bundle is for, where it comes from and what was measured; by id or digest."""
    with services.database.reading() as session:
        return _view(session, owners.artifact(session, artifact, principal), principal)


@router.get(
    "/artifacts/{artifact}/download",
    operation_id="download_artifact",
    response_class=Response,
    responses={**_BYTES, **problems.responses(404, 410, 416, 503)},
)
def download(services: ServicesDep, principal: Reader, request: Request, artifact: str) -> Response:
    """The bundle's bytes. Its ETag is its sha256; If-None-Match, Range and If-Range are honoured."""
    with services.database.reading() as session:
        found = owners.artifact(session, artifact, principal)
    file = services.blobs.open(found.digest)
    return downloads.respond(request, file, digest=found.digest, size=found.size_bytes, file_name=f"{found.id}.tar")


@router.delete(
    "/artifacts/{artifact}",
    operation_id="delete_artifact",
    response_model=schemas.Deletion,
    responses=problems.responses(404),
)
def remove(services: ServicesDep, principal: Submitter, artifact: str) -> schemas.Deletion:
    """Delete a bundle that a job of yours published; the job keeps its report, and records are kept.

    It is never the best any more. The bytes are removed some time later; whoever asks for them gets 410.
    """
    with services.database.transaction() as session:
        try:
            found = owners.artifact(session, artifact, principal)
        except errors.ArtifactDeleted:
            return schemas.Deletion(id=artifacts.get(session, artifact).id, gone=True)
        if not owners.jobs_of(session, [found.job_id], principal):
            raise errors.Forbidden(
                f"artifact {found.id} was published by a job of somebody else",
                hint="Its owner or an admin deletes it; you may delete the model, which is yours as well.",
            )
        deletion.delete_artifact(session, found, now=datetime.now(UTC))
    return schemas.Deletion(id=found.id, gone=True)


@router.get("/best", operation_id="get_best", response_model=schemas.Best, responses=problems.responses(404))
def best(
    services: ServicesDep,
    principal: Reader,
    model: Annotated[str, Query(min_length=1, max_length=200, description="Id or digest.")],
    target: _Target = None,
    device: _Device = None,
    toolchain: Annotated[
        str | None, Query(max_length=200, description="One, or its beginning: relay, relay/tvm-0.19.0.")
    ] = None,
    precision: Annotated[
        str,
        Query(
            max_length=100,
            description="f32 unless a narrower one is asked for; auto: the fastest of any.",
            json_schema_extra={"enum": list(Precision)},
        ),
    ] = Precision.F32,
    input_shape: Annotated[
        list[str] | None,
        Query(
            max_length=256, description="NAME:1,3,224,224; repeatable. Inputs that are not named may have any shape."
        ),
    ] = None,
) -> schemas.Best:
    """The verified bundle of this model, target and precision with the smallest median latency."""
    wanted_shapes = shapes.parse(input_shape or [])
    wanted_precision = choices.member(Precision, precision, "precision", errors.UnknownPrecision)
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
    return views.artifact(artifact, jobs=owners.jobs_of(session, [artifact.job_id], principal))


def _target(session: Session, text: str) -> str:
    """Raises UnknownTarget, also when 'native' could mean several."""
    bare, threads = targets.split_threads(text)
    checked = targets.check_text(bare)
    if checked != targets.NATIVE:
        return checked + threads
    natives = sorted({worker.native_target.text for worker in workers.known(session)})
    if len(natives) != 1:
        what = f"several things here: {', '.join(natives)}" if natives else "nothing before a worker has started"
        raise errors.UnknownTarget(f"'native' means {what}", hint="Name the target.", details={"near_matches": natives})
    return natives[0] + threads


def _why(found: Artifact, target: str | None, device: str | None) -> str:
    median = found.report.timings[found.report.published].median * 1000
    scope = "".join(
        [f" for target {target}" if target else " for any target", f" on device {device}" if device else ""]
    )
    made_for = " ".join(f"{name}:{','.join(map(str, shape))}" for name, shape in sorted(found.input_shapes.items()))
    return (
        f"Of this model's verified {found.precision} artifacts{scope} it has the smallest median: {median:.3f} ms "
        f"({found.report.published} on {found.device_key}{', for ' if made_for else ''}{made_for})."
    )
