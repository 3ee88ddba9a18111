"""What lies in a published bundle, read from its bytes."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from typing import Any

from domain import errors
from domain.blobs import BlobStore
from tuner import bundle

_MOST_FILES = 50
_MOST_MANIFEST_BYTES = 1024 * 1024

_MEANINGS = {
    bundle.LIBRARY: "the compiled network",
    bundle.OBJECTS: "object files, to be linked elsewhere",
    bundle.ARCHIVE: "a static library whose functions register themselves",
    "mod.json": "the graph, or the virtual machine's code",
    "mod.params": "the weights",
    bundle.MANIFEST: "what it is for, and every file's sha256",
    bundle.EVIDENCE: "benchmark samples, errors, and what was compared",
    bundle.RECORDS: "the winning records, in the tuner's own form",
    bundle.README: "how to run it",
    bundle.EXAMPLE: "a program that does",
}


@dataclass(frozen=True, kw_only=True)
class BundledFile:
    name: str
    size: int
    """Bytes."""
    sha256: str | None
    """As the manifest has it; None of the manifest itself."""
    meaning: str


def contents(blobs: BlobStore, digest: str) -> list[BundledFile]:
    """Empty when the bytes are gone or no bundle. Reads the tar's headers and the manifest, whatever the size."""
    try:
        with blobs.open(digest) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            members = [member for member in archive if member.isfile()][:_MOST_FILES]
            digests = _digests(archive, members)
    except (
        errors.BlobNotFound,
        errors.BlobDamaged,
        errors.BlobStoreUnavailable,
        tarfile.TarError,
        OSError,
        ValueError,
    ):
        return []
    return [
        BundledFile(
            name=member.name, size=member.size, sha256=digests.get(member.name), meaning=_MEANINGS.get(member.name, "")
        )
        for member in members
    ]


def _digests(archive: tarfile.TarFile, members: list[tarfile.TarInfo]) -> dict[str, str]:
    manifest = next((member for member in members if member.name == bundle.MANIFEST), None)
    content = archive.extractfile(manifest) if manifest else None
    if content is None:
        return {}
    with content:
        told: Any = json.loads(content.read(_MOST_MANIFEST_BYTES))
    files = told.get("files", {})
    return {str(name): str(digest) for name, digest in files.items()}
