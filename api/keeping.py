"""Bytes that become a model: kept, read and named, or removed again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from api import allowances
from api.services import Services
from domain import errors
from domain.blobs import Blob
from domain.models import Model, ModelFacts, ModelFormat
from domain.tokens import Principal
from storage import blob_owners, garbage, models, owners, quotas, statements

_MOST_MODULE_BYTES = 16 * 1024**2
"""The relax engine reads no larger IRModule: it holds one operator and no weights."""


def limit(services: Services, model_format: ModelFormat) -> int:
    """Bytes that a model of the format may have."""
    most = services.settings.max_model_bytes
    return min(most, _MOST_MODULE_BYTES) if model_format is ModelFormat.IRMODULE else most


def keep(
    services: Services,
    principal: Principal,
    name: str,
    chunks: Iterable[bytes],
    model_format: ModelFormat = ModelFormat.ONNX,
) -> tuple[Model, bool]:
    """The model of these bytes, and whether it is new to the principal.

    Raises BlobTooLarge, QuotaExceeded, InvalidModel, EngineError, Unavailable.
    """
    blob = allowances.put(services, principal, chunks, limit=limit(services, model_format))
    put_before = datetime.now(UTC)
    known = _claimed(services, principal, name, blob)
    if known:
        return known
    try:
        if blob.size_bytes == 0:
            raise errors.InvalidModel("the request has no body", hint="Send the bytes of one model file as the body.")
        with services.blobs.local(blob.digest) as path:
            facts = services.inspect(path, model_format)
        return _added(services, principal, name, blob, facts)
    except Exception:
        _discard(services, blob, put_before)
        raise


def _added(services: Services, principal: Principal, name: str, blob: Blob, facts: ModelFacts) -> tuple[Model, bool]:
    _check_there(services, blob)
    with services.database.transaction() as session:
        now = datetime.now(UTC)
        model, _ = models.add(session, digest=blob.digest, name=name, size_bytes=blob.size_bytes, facts=facts, now=now)
        return model, _own(session, principal, blob, now)


def _check_there(services: Services, blob: Blob) -> None:
    """Another upload of the same bytes may have been rejected meanwhile, and have removed them. Raises Unavailable."""
    if not services.blobs.exists(blob.digest):
        message = "another upload of the same bytes failed and removed them"
        raise errors.Unavailable(message, hint="Upload them again.")


def _claimed(services: Services, principal: Principal, name: str, blob: Blob) -> tuple[Model, bool] | None:
    """A model that is there, the principal's as well from now on. Raises QuotaExceeded."""
    with services.database.reading() as session:
        known = _known(session, blob.digest)
        if known is None or owners.owns_model(session, blob.digest, principal.owner):
            return (known, False) if known else None
    _check_there(services, blob)
    with services.database.transaction() as session:
        now = datetime.now(UTC)
        # A deleted one comes back, with what was found out about it.
        size, facts = blob.size_bytes, known.facts
        model, _ = models.add(session, digest=blob.digest, name=name, size_bytes=size, facts=facts, now=now)
        return model, _own(session, principal, blob, now)


def _own(session: Session, principal: Principal, blob: Blob, now: datetime) -> bool:
    """Whether the model was not the principal's before. Raises QuotaExceeded."""
    quotas.lock(session, principal)
    if owners.owns_model(session, blob.digest, principal.owner):
        return False
    quotas.check_stored(session, principal, blob.size_bytes)
    return owners.add_model(session, blob.digest, principal.owner, now=now)


def _discard(services: Services, blob: Blob, put_before: datetime) -> None:
    """Remove rejected bytes, unless a model, another upload since then, or another service has the same ones."""
    owner = services.blobs.owner()
    with services.database.transaction() as session:
        # Whoever is naming the bytes just now is waited for.
        statements.lock_digest(session, blob.digest)
        kept = garbage.named(session, [blob.digest]) or owner not in (None, blob_owners.identity(session))
    if not kept:
        services.blobs.delete(blob.digest, put_before=put_before)


def _known(session: Session, digest: str) -> Model | None:
    try:
        return models.get(session, digest)
    except errors.ModelNotFound:
        return None
