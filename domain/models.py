"""Uploaded models, and operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import PurePath
from typing import Any

from domain.digests import ModelDigest


class ModelFormat(StrEnum):
    ONNX = "onnx"
    IRMODULE = "irmodule"  # one tensor function as TVM IRModule JSON, read as data

    @property
    def suffix(self) -> str:
        """File suffix, by which engines recognize the format."""
        return _SUFFIXES[self]

    @property
    def reader(self) -> str:
        """Name of the engine that reads uploads of this format."""
        return "relax" if self is ModelFormat.IRMODULE else "onnx"

    @classmethod
    def of(cls, path: PurePath) -> ModelFormat:
        """Return the format by the file's suffix; ONNX for unknown ones."""
        return next((each for each in cls if path.suffix == each.suffix), cls.ONNX)


_SUFFIXES = {ModelFormat.ONNX: ".onnx", ModelFormat.IRMODULE: ".json"}


_CONTRIB = (
    *("AttnLSTM", "BeamSearch", "CDist", "CropAndResize", "DecoderMaskedMultiHeadAttention", "GatherBlockQuantized"),
    *("GreedySearch", "GroupQueryAttention", "Inverse", "MatMulBnb4", "MaxpoolWithMask", "MoE", "MurmurHash3"),
    *("NGramRepeatBlock", "QMoE", "Sampling", "SparseAttention", "Tokenizer", "WhisperBeamSearch", "WordConvEmbedding"),
)
NOT_IMPORTED = frozenset(
    (
        *("Det", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
        *(f"com.microsoft::{name}" for name in _CONTRIB),
    )
)
"""Operators that ONNX Runtime runs on CPUs, and that no engine imports without a plugin."""
_NOT_IMPORTED_DOMAIN = "ai.onnx.ml::"


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Properties of the file, known before an engine imports it."""

    inputs: tuple[TensorSpec, ...]
    """Inputs without initializers."""
    outputs: tuple[TensorSpec, ...]
    opset: int
    """ONNX's opset and IR version; 0 for other formats."""
    ir_version: int
    operators: dict[str, int]
    """Operator name (``domain::Name`` outside the default domain) to count; of an IRModule its functions."""
    parameters: int
    """Number of scalar weights."""
    format: ModelFormat = ModelFormat.ONNX

    @property
    def not_imported(self) -> dict[str, int]:
        """Operators that no engine imports without a plugin, with their counts; not a complete list."""
        if self.format is not ModelFormat.ONNX:
            return {}
        return {
            name: count
            for name, count in self.operators.items()
            if name in NOT_IMPORTED or name.startswith(_NOT_IMPORTED_DOMAIN)
        }


@dataclass(frozen=True, kw_only=True)
class Model:
    id: str
    digest: ModelDigest
    """sha256 of the uploaded bytes, hex."""
    name: str
    size_bytes: int
    facts: ModelFacts
    created_at: datetime
    deleted_at: datetime | None = None
    """Set at deletion; its bytes are unavailable since then."""


Dimension = int | str | None
"""A size, the name of a symbolic dimension, or None for an unnamed dynamic one."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    name: str
    dtype: str
    """numpy name: ``float32``, ``int64``, …"""
    shape: tuple[Dimension, ...]


def tensor_specs(entries: Iterable[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    """Of mappings with ``name``, ``dtype`` and ``shape``, as engines write them."""
    return tuple(TensorSpec(name=entry["name"], dtype=entry["dtype"], shape=tuple(entry["shape"])) for entry in entries)
