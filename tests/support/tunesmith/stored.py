"""Bundles that some job made, put into the store of a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import delete

from domain.artifacts import Artifact
from storage import artifacts, jobs
from storage.tables import ArtifactRow
from tests.support.api.factories import Service
from tests.support.api.scripted import ScriptedWorker
from tunesmith.client import Client
from tunesmith.models import Model


def tuned(service: Service, client: Client, model: Model, *, gain: float, **changes: Any) -> Artifact:
    """The bundle of a new job, 0.8 ms / ``gain`` fast, with ``changes``: toolchain, device_key, target, verified…"""
    job = client.tune(model)
    worker = ScriptedWorker(service)
    worker.beat()
    worker.run(job.id, gain=gain)
    with service.database.transaction() as session:
        identifier = jobs.get(session, job.id).artifact_id
        assert identifier is not None
        made = artifacts.get(session, identifier)
    return replaced(service, made, **changes) if changes else made


def replaced(service: Service, made: Artifact, **changes: Any) -> Artifact:
    """The same with other facts, in place of the first: rows are written once."""
    changed = replace(made, **changes)
    with service.database.transaction() as session:
        session.execute(delete(ArtifactRow).where(ArtifactRow.id == made.id))
        return artifacts.add(session, changed)


def forget(service: Service, artifact_id: str) -> None:
    with service.database.transaction() as session:
        session.execute(delete(ArtifactRow).where(ArtifactRow.id == artifact_id))
