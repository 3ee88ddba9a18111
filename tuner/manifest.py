"""What a bundle says about itself, in ``manifest.json``."""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.tensors import TensorSpec

FORMAT_VERSION = 1
EXECUTORS = {"relay": "graph", "relax": "vm"}
"""What runs the networks that each engine compiles."""


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
    executor: str = "graph"
    """``graph``, TVM 0.19's graph executor, or ``vm``, the Relax virtual machine of TVM 0.27."""
    format: str = "shared"
    """``shared``, ``object`` or ``system-lib``, see ``domain.jobs.BundleFormat``."""
    tuner: str | None = None
    """Whose records the bundle holds; None in bundles of releases that had one tuner for each engine."""
    files: dict[str, str] = field(default_factory=dict)
    """sha256 of every file but the manifest, hex; ``write`` fills it in."""
    format_version: int = FORMAT_VERSION
