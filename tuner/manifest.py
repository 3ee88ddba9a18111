"""What a bundle says about itself, in ``manifest.json``."""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.tensors import TensorSpec

FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Manifest:
    model_digest: str
    """sha256 of the uploaded ONNX bytes, hex."""
    model_name: str
    variant: str
    target: str
    threads: int
    device_key: str
    toolchain: dict[str, str]
    precision: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    created_by: str
    """Name and version of what wrote the bundle."""
    files: dict[str, str] = field(default_factory=dict)
    """sha256 of every file but the manifest, hex; ``write`` fills it in."""
    format_version: int = FORMAT_VERSION
