"""Artifacts: compiled bundles with their evidence."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from tunesmith import downloads
from tunesmith.downloads import Progress
from tunesmith.transport import Json, Transport


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """An artifact. ``data`` holds all fields of the server; the properties are the common ones."""

    id: str
    digest: str
    """sha256 of the bundle's bytes, hex."""
    size_bytes: int
    data: Json = field(repr=False)
    transport: Transport = field(repr=False, compare=False)
    why: str | None = None
    """Why it is the best one; set by ``Client.best``."""

    @classmethod
    def of(cls, transport: Transport, data: Json, why: str | None = None) -> Artifact:
        return cls(
            id=data["id"], digest=data["digest"], size_bytes=data["bytes"], data=data, transport=transport, why=why
        )

    @property
    def target(self) -> str:
        """With its thread count: ``llvm -mcpu=znver3 -num-cores=2``."""
        return str(self.data["target"])

    @property
    def device_key(self) -> str:
        return str(self.data["device_key"])

    @property
    def toolchain(self) -> str:
        """Engine, TVM and LLVM version: ``relay/tvm-0.19.0/llvm-22``."""
        return str(self.data["toolchain"])

    @property
    def report(self) -> Json:
        """Timings, verifications and a summary, as ``Job.report``."""
        return dict(self.data["report"])

    @property
    def median_seconds(self) -> float | None:
        """Median time of a run of the published variant; None if it was never run."""
        timing = self.data["report"]["timings"].get(self.data["report"]["published"])
        return None if timing is None else float(timing["median"])

    def download(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
        """Download the bundle to the file or folder ``path``; the file is complete and verified, or not created.

        A ``path`` that ends with a slash is a folder, which is created if missing. An interrupted download is resumed
        by the next one to the same place. ``progress`` is called with the bytes received and the total.
        Raises InvalidInput if ``path`` cannot be written, ServerError for corrupt bytes, and NetworkError.
        """
        downloads.make_folder(path)
        target = self.place(path)
        source = f"/v1/artifacts/{self.id}/download"
        return downloads.fetch(
            self.transport, source, target, digest=self.digest, size=self.size_bytes, progress=progress
        )

    def place(self, path: str | os.PathLike[str]) -> Path:
        """Return the file that ``download`` writes."""
        return downloads.place(path, f"{self.id}.tar")
