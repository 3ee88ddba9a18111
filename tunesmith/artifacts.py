"""A compiled bundle with its evidence."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from tunesmith import downloads
from tunesmith.downloads import Progress
from tunesmith.transport import Json, Transport


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """``data`` is everything the server says; the properties are what is mostly asked for."""

    id: str
    digest: str
    """sha256 of the bundle's bytes, hex."""
    size_bytes: int
    data: Json = field(repr=False)
    transport: Transport = field(repr=False, compare=False)
    why: str | None = None
    """Why it is the best, when that was asked for."""

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
        """Of a run of what was published; None of what nobody could run."""
        timing = self.data["report"]["timings"].get(self.data["report"]["published"])
        return None if timing is None else float(timing["median"])

    def download(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
        """Write the bundle to ``path``, or into the folder ``path``: wholly and with the right digest, or not at all.

        A text that ends with a slash names a folder, which is made where it is missing.
        What a broken download leaves is taken up by the next one to the same place. ``progress`` gets bytes there and
        bytes in all. Raises InvalidInput for what cannot be written, ServerError for wrong bytes, NetworkError.
        """
        downloads.make_folder(path)
        target = self.place(path)
        source = f"/v1/artifacts/{self.id}/download"
        return downloads.fetch(
            self.transport, source, target, digest=self.digest, size=self.size_bytes, progress=progress
        )

    def place(self, path: str | os.PathLike[str]) -> Path:
        """Where ``download`` writes to."""
        return downloads.place(path, f"{self.id}.tar")
