"""The uploaded network."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from domain.tensors import TensorSpec


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What reading the ONNX file tells, before any engine has tried to import it."""

    inputs: tuple[TensorSpec, ...]
    """Only what a caller feeds: initializers are left out."""
    outputs: tuple[TensorSpec, ...]
    opset: int
    ir_version: int
    operators: dict[str, int]
    """Operator name (``domain::Name`` outside the default domain) to count."""
    parameters: int
    """Number of scalar weights."""


@dataclass(frozen=True, kw_only=True)
class Model:
    id: str
    digest: str
    """sha256 of the ONNX bytes, hex."""
    name: str
    size_bytes: int
    facts: ModelFacts
    created_at: datetime
