"""Uploads of files, whatever they hold: received in a thread, limited by size and quota, removed if rejected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import anyio
from fastapi import Request

from api.connections import Caller
from api.middleware import body_limit
from api.services import Services
from domain import errors
from domain.blobs import Blob
from domain.ports import Canceled
from domain.tokens import Principal
from storage import garbage, quotas, statements
from storage.blobs import ownership

Kept = TypeVar("Kept")


def body(description: str) -> dict[str, Any]:
    """Return what the schema says of a request whose body is a file."""
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "description": description, "content": content}}


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


def check_kept(services: Services, blob: Blob) -> None:
    """Raise Unavailable if the bytes are gone: another upload of them was rejected in the meantime."""
    if not services.blobs.exists(blob.digest):
        message = "a concurrent upload of the same file failed"
        raise errors.Unavailable(message, hint="Upload the file again.")


@contextmanager
def discarding(services: Services, blob: Blob, put_before: datetime, *, noun: str) -> Iterator[None]:
    """Remove the bytes if they are rejected. Raises Unavailable if the caller left."""
    try:
        yield
    except Canceled:
        _discard(services, blob, put_before)
        raise errors.Unavailable(f"the caller left before the {noun} was read") from None
    except Exception:
        _discard(services, blob, put_before)
        raise


def _discard(services: Services, blob: Blob, put_before: datetime) -> None:
    """Remove rejected bytes, which no quota counts, unless a model, a later upload or another service uses them."""
    owner = services.blobs.owner()
    with services.database.transaction() as session:
        # Wait for transactions that are adding a reference to these bytes.
        statements.lock_digest(session, blob.digest)
        kept = garbage.named(session, [blob.digest]) or owner not in (None, ownership.identity(session))
    if not kept:
        services.blobs.delete(blob.digest, put_before=put_before)
