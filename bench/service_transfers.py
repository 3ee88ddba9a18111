"""A large upload and a large download through a running service, and what memory they take there."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from bench import huge_model
from domain import ids
from domain.artifacts import Artifact, Report, Variant
from storage import artifacts, blob_stores
from storage.database import Database
from storage.settings import StorageSettings
from tunesmith.client import Client

_SAMPLE_SECONDS = 0.02
_MIB = 1024 * 1024


def measure(client: Client, api: psutil.Process, home: Path, job_id: str, size: int) -> dict[str, Any]:
    """The artifact is put into the store beside the API: no tuned network has a gigabyte."""
    sent, received = home / "large.onnx", home / "large.tar"
    huge_model.write(sent, size)
    with _watched(api) as upload:
        model = client.upload(sent)
    artifact = _publish(home, sent, model.digest, job_id)
    with _watched(api) as download:
        client.artifact(artifact.id).download(received)
    for path in (sent, received):
        path.unlink()
    return {"bytes": size, "upload": upload, "download": download}


@contextmanager
def _watched(process: psutil.Process) -> Iterator[dict[str, float]]:
    """Filled in at the end: seconds, and MiB of resident memory before and at the most."""
    done, before = threading.Event(), process.memory_info().rss
    peak = before

    def sample() -> None:
        nonlocal peak
        while not done.wait(_SAMPLE_SECONDS):
            peak = max(peak, process.memory_info().rss)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    found: dict[str, float] = {}
    started = time.monotonic()
    try:
        yield found
    finally:
        seconds = time.monotonic() - started
        done.set()
        sampler.join()
        found |= {"seconds": round(seconds, 2), "mib_before": round(before / _MIB, 1)}
        found |= {"mib_peak": round(peak / _MIB, 1), "mib_grown": round((peak - before) / _MIB, 1)}


def _publish(home: Path, content: Path, model_digest: str, job_id: str) -> Artifact:
    settings = StorageSettings(home=home)
    with content.open("rb") as file:
        blob = blob_stores.open_store(settings).put(iter(lambda: file.read(_MIB), b""))
    artifact = Artifact(
        id=ids.artifact(blob.digest),
        digest=blob.digest,
        size_bytes=blob.size_bytes,
        job_id=job_id,
        model_digest=model_digest,
        input_shapes={},
        target="none",
        device_key="none",
        toolchain="none",
        precision="f32",
        report=Report(
            timings={},
            verifications={},
            published=Variant.UNTUNED,
            speedup_over_untuned=1.0,
            speedup_over_reference=None,
            summary="",
        ),
        created_at=datetime.now(UTC),
    )
    database = Database(settings.database_url)
    with database.transaction() as session:
        artifacts.add(session, artifact)
    database.close()
    return artifact
