"""An uploaded network."""

from __future__ import annotations

from dataclasses import dataclass, field

from tunesmith.transport import Json


@dataclass(frozen=True, kw_only=True)
class Model:
    id: str
    digest: str
    """sha256 of the uploaded bytes, hex."""
    name: str
    data: Json = field(repr=False)
    """Everything the server says: inputs, outputs, opset, operators, …"""
    created: bool | None = None
    """After an upload: whether the bytes were new to the server."""

    @classmethod
    def of(cls, data: Json, *, created: bool | None = None) -> Model:
        return cls(id=data["id"], digest=data["digest"], name=data["name"], data=data, created=created)
