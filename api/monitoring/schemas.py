"""JSON schemas of liveness and readiness."""

from __future__ import annotations

from pydantic import BaseModel


class Health(BaseModel):
    status: str
    version: str


class Readiness(BaseModel):
    status: str
    checks: dict[str, str]
