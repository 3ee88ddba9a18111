"""Whether a token's quota has room for an upload, asked before its bytes are read."""

from __future__ import annotations

from collections.abc import Iterable

from api.services import Services
from domain import errors
from domain.blobs import Blob
from domain.tokens import Principal
from storage import quotas


def check_announced(services: Services, principal: Principal, size_bytes: int) -> None:
    """Raises QuotaExceeded. What may be a model that the owner has already is let through: that costs nothing."""
    if principal.quota.stored_bytes is None:
        return
    with services.database.reading() as session:
        if size_bytes not in quotas.sizes_of_models(session, principal.owner):
            quotas.check_stored(session, principal, size_bytes)


def put(services: Services, principal: Principal, chunks: Iterable[bytes], *, limit: int) -> Blob:
    """Store the bytes, no more than the quota has room for. Raises BlobTooLarge and QuotaExceeded."""
    quota = principal.quota.stored_bytes
    if quota is None:
        return services.blobs.put(chunks, limit=limit)
    with services.database.reading() as session:
        left = quota - quotas.stored_bytes(session, principal.owner)
        most = max([left, *quotas.sizes_of_models(session, principal.owner)])
    try:
        return services.blobs.put(chunks, limit=max(0, min(limit, most)))
    except errors.BlobTooLarge as error:
        if most >= limit:
            raise
        raise quotas.exceeded_bytes(quota, quota - left) from error
