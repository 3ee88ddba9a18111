"""Uploaded models."""

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
    """All fields of the server: inputs, outputs, opset, operators, …"""
    created: bool | None = None
    """After an upload: whether the model was new to the server."""

    @classmethod
    def of(cls, data: Json, *, created: bool | None = None) -> Model:
        return cls(id=data["id"], digest=data["digest"], name=data["name"], data=data, created=created)
