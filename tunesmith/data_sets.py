"""Data sets: rows of one's own inputs."""

from __future__ import annotations

from dataclasses import dataclass, field

from tunesmith.transport import Json


@dataclass(frozen=True, kw_only=True)
class DataSet:
    id: str
    digest: str
    """sha256 of the ``.npz`` file, hex."""
    name: str
    rows: int
    data: Json = field(repr=False)
    """All fields of the server: arrays, bytes, owner, …"""
    created: bool | None = None
    """After an upload: whether the data set was new to the server."""

    @classmethod
    def of(cls, data: Json, *, created: bool | None = None) -> DataSet:
        return cls(
            id=data["id"], digest=data["digest"], name=data["name"], rows=data["rows"], data=data, created=created
        )
