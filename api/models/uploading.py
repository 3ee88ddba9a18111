"""Storage and inspection of uploaded models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from api import uploads
from api.services import Services
from domain import errors
from domain.blobs import Blob
from domain.digests import ModelDigest
from domain.models import Model, ModelFacts, ModelFormat
from domain.tokens import Principal
from storage import models, owners, quotas

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
    blob = uploads.put_within_quota(services, principal, content, limit=limit(services, model_format))
    put_before = datetime.now(UTC)
    known = _claimed(services, principal, name, blob)
    if known:
        return known
    with uploads.discarding(services, blob, put_before, noun="model"):
        if blob.size_bytes == 0:
            raise errors.InvalidModel("the request has no body", hint="Send the bytes of one model file as the body.")
        with services.blobs.local(blob.digest) as path:
            facts = services.inspect(path, model_format, unwanted)
        return _added(services, principal, name, blob, facts)


def _added(services: Services, principal: Principal, name: str, blob: Blob, facts: ModelFacts) -> tuple[Model, bool]:
    uploads.check_kept(services, blob)
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


def _known(session: Session, digest: ModelDigest) -> Model | None:
    try:
        return models.get(session, digest)
    except errors.ModelNotFound:
        return None
