"""What a bundle says about itself, in ``manifest.json``."""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.digests import ModelDigest
from domain.models import TensorSpec

FORMAT_VERSION = 1
ENGINES = {"relay": ("graph", "autotvm"), "relax": ("vm", "metaschedule")}
"""What runs the networks that each engine compiles, and its first tuner."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    model_digest: ModelDigest
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
    executor: str = ""
    """``graph``, TVM 0.19's graph executor, or ``vm``, Relax's virtual machine; the engine's if not given."""
    format: str = "shared"
    """``shared``, ``object`` or ``system-lib``, see ``domain.jobs.BundleFormat``."""
    tuner: str | None = None
    """Whose records the bundle holds, empty where it holds none; if not given the engine's first tuner, which was its
    only one once."""
    files: dict[str, str] = field(default_factory=dict)
    """sha256 of every file but the manifest, hex; ``write`` fills it in."""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        executor, tuner = ENGINES.get(self.toolchain.get("engine", ""), ("graph", "autotvm"))
        object.__setattr__(self, "executor", self.executor or executor)
        object.__setattr__(self, "tuner", tuner if self.tuner is None else self.tuner)

    @property
    def engine(self) -> str:
        """Name of the engine that runs it. Raises KeyError for an executor that this release does not know."""
        return {executor: engine for engine, (executor, _) in ENGINES.items()}[self.executor]
