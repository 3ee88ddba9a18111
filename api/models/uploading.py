"""Storage and inspection of uploaded models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

import anyio
from fastapi import Request
from sqlalchemy.orm import Session

from api.connections import Caller
from api.middleware import body_limit
from api.services import Services
from domain import errors
from domain.blobs import Blob
from domain.digests import ModelDigest
from domain.models import Model, ModelFacts, ModelFormat
from domain.ports import Canceled
from domain.tokens import Principal
from storage import garbage, models, owners, quotas, statements
from storage.blobs import ownership

Kept = TypeVar("Kept")

_MOST_MODULE_BYTES = 16 * 1024**2
"""Larger IRModules cannot be read by the relax engine; they hold one operator and no weights."""


def limit(services: Services, model_format: ModelFormat) -> int:
    """Return the maximum bytes of a model of the format."""
    most = services.settings.max_model_bytes
    return min(most, _MOST_MODULE_BYTES) if model_format is ModelFormat.IRMODULE else most


def keep(
    services: Services,
    principal: Principal,
    name: str,
    content: Iterable[bytes],
    model_format: ModelFormat = ModelFormat.ONNX,
    unwanted: Callable[[], bool] = lambda: False,
) -> tuple[Model, bool]:
    """Store a model and return it, and whether it is new to the principal; ends if it becomes ``unwanted``.

    Raises BlobTooLarge, QuotaExceeded, InvalidModel, EngineError, Unavailable.
    """
    blob = put_within_quota(services, principal, content, limit=limit(services, model_format))
    put_before = datetime.now(UTC)
    known = _claimed(services, principal, name, blob)
    if known:
        return known
    try:
        if blob.size_bytes == 0:
            raise errors.InvalidModel("the request has no body", hint="Send the bytes of one model file as the body.")
        with services.blobs.local(blob.digest) as path:
            facts = services.inspect(path, model_format, unwanted)
        return _added(services, principal, name, blob, facts)
    except Canceled:
        discard(services, blob, put_before)
        raise errors.Unavailable("the caller left before the model was read") from None
    except Exception:
        discard(services, blob, put_before)
        raise


def check_kept(services: Services, blob: Blob) -> None:
    """Raise Unavailable if the bytes are gone: another upload of them was rejected in the meantime."""
    if not services.blobs.exists(blob.digest):
        message = "a concurrent upload of the same file failed"
        raise errors.Unavailable(message, hint="Upload the file again.")


def _added(services: Services, principal: Principal, name: str, blob: Blob, facts: ModelFacts) -> tuple[Model, bool]:
    check_kept(services, blob)
    with services.database.transaction() as session:
        now = datetime.now(UTC)
        digest = ModelDigest(blob.digest)
        model, _ = models.add(session, digest=digest, name=name, size_bytes=blob.size_bytes, facts=facts, now=now)
        return model, _own(session, principal, blob, now)


def _claimed(services: Services, principal: Principal, name: str, blob: Blob) -> tuple[Model, bool] | None:
    """Return an existing model and make the principal an owner. Raises QuotaExceeded."""
    with services.database.reading() as session:
        known = _known(session, ModelDigest(blob.digest))
        if known is None or owners.owns_model(session, known.digest, principal.owner):
            return (known, False) if known else None
    # Uploading a deleted model restores it, including the results of its inspection.
    return _added(services, principal, name, blob, known.facts)


def _own(session: Session, principal: Principal, blob: Blob, now: datetime) -> bool:
    """Make the principal an owner; returns whether it was not one before. Raises QuotaExceeded."""
    quotas.lock(session, principal)
    digest = ModelDigest(blob.digest)
    if owners.owns_model(session, digest, principal.owner):
        return False
    quotas.check_stored(session, principal, blob.size_bytes)
    return owners.add_model(session, digest, principal.owner, now=now)


def discard(services: Services, blob: Blob, put_before: datetime) -> None:
    """Remove rejected bytes, which no quota counts, unless a model, a later upload or another service uses them."""
    owner = services.blobs.owner()
    with services.database.transaction() as session:
        # Wait for transactions that are adding a reference to these bytes.
        statements.lock_digest(session, blob.digest)
        kept = garbage.named(session, [blob.digest]) or owner not in (None, ownership.identity(session))
    if not kept:
        services.blobs.delete(blob.digest, put_before=put_before)


def _known(session: Session, digest: ModelDigest) -> Model | None:
    try:
        return models.get(session, digest)
    except errors.ModelNotFound:
        return None


def _check_announced(services: Services, principal: Principal, size_bytes: int) -> None:
    """Raise QuotaExceeded for the announced size, unless the owner may already have the file, which costs nothing."""
    if principal.quota.stored_bytes is None:
        return
    with services.database.reading() as session:
        if size_bytes not in quotas.sizes_of_uploads(session, principal.owner):
            quotas.check_stored(session, principal, size_bytes)


def put_within_quota(services: Services, principal: Principal, content: Iterable[bytes], *, limit: int) -> Blob:
    """Store the bytes, limited by the quota. Raises BlobTooLarge and QuotaExceeded."""
    quota = principal.quota.stored_bytes
    if quota is None:
        return services.blobs.put(content, limit=limit)
    with services.database.reading() as session:
        left = quota - quotas.stored_bytes(session, principal.owner)
        most = max([left, *quotas.sizes_of_uploads(session, principal.owner)])
    try:
        return services.blobs.put(content, limit=max(0, min(limit, most)))
    except errors.BlobTooLarge as error:
        if most >= limit:
            raise
        raise quotas.exceeded_bytes(quota, quota - left) from error


async def received(
    request: Request,
    services: Services,
    principal: Principal,
    keep: Callable[[Iterator[bytes], Callable[[], bool]], Kept],
    *,
    limit: int,
    noun: str,
) -> Kept:
    """Return what ``keep`` makes of the body's chunks, in a thread; its second argument says whether the caller left.

    Raises BlobTooLarge and QuotaExceeded, by the announced size before anything is read.
    """
    announced = body_limit.announced(request.headers)
    if announced > limit:
        raise errors.BlobTooLarge(
            f"the {noun} has {announced} bytes; the limit is {limit}", details={"limit_bytes": limit}
        )
    if announced:
        await anyio.to_thread.run_sync(_check_announced, services, principal, announced)
    stream, caller = request.stream(), Caller(request)

    def kept() -> Kept:
        return keep(_chunks(stream, caller), caller.has_left)

    async with services.uploads.one(principal.owner) as limiter:
        try:
            return await anyio.to_thread.run_sync(kept, limiter=limiter)
        finally:
            caller.release()


def _chunks(stream: AsyncIterator[bytes], caller: Caller) -> Iterator[bytes]:
    """Read the event loop's stream from a worker thread, one chunk at a time."""
    while (chunk := anyio.from_thread.run(_following, stream, caller)) is not None:
        yield chunk


async def _following(stream: AsyncIterator[bytes], caller: Caller) -> bytes | None:
    chunk = await anext(stream, None)
    if chunk is None:
        caller.watch()
    return chunk
