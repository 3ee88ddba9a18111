"""Storage and inspection of uploaded data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from api import uploads
from api.services import Services
from domain import errors
from domain.blobs import Blob
from domain.data_sets import DataFacts, DataSet
from domain.tokens import Principal
from storage import data_sets, quotas


def keep(
    services: Services, principal: Principal, name: str | None, chunks: Iterable[bytes], unwanted: Callable[[], bool]
) -> tuple[DataSet, bool]:
    """Store a data set and return it, and whether it is new to the owner; ends if it becomes ``unwanted``.

    Raises BlobTooLarge, QuotaExceeded, InvalidDataSet, DataSetNameTaken, EngineError, Unavailable.
    """
    blob = uploads.put_within_quota(services, principal, chunks, limit=services.settings.max_model_bytes)
    put_before = datetime.now(UTC)
    with services.database.reading() as session:
        known = data_sets.find(session, principal.owner, blob.digest)
    if known:
        return known, False
    with uploads.discarding(services, blob, put_before, noun="data set"):
        if blob.size_bytes == 0:
            raise errors.InvalidDataSet("the request has no body", hint="Send the bytes of one .npz file as the body.")
        with services.blobs.local(blob.digest) as path:
            facts = services.inspect_rows(path, unwanted)
        return _added(services, principal, name or f"data-{blob.digest[:12]}", blob, facts), True


def _added(services: Services, principal: Principal, name: str, blob: Blob, facts: DataFacts) -> DataSet:
    uploads.check_kept(services, blob)
    with services.database.transaction() as session:
        quotas.lock(session, principal)
        if known := data_sets.find(session, principal.owner, blob.digest):
            return known
        quotas.check_stored(session, principal, blob.size_bytes)
        return data_sets.add(
            session,
            digest=blob.digest,
            name=name,
            owner=principal.owner,
            size_bytes=blob.size_bytes,
            facts=facts,
            now=datetime.now(UTC),
        )
