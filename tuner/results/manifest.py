"""The ``manifest.json`` of bundles."""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.digests import ModelDigest
from domain.models import TensorSpec
from domain.sizes import Size

FORMAT_VERSION = 1
ENGINES = {"relay": ("graph", "autotvm"), "relax": ("vm", "metaschedule")}
"""Executor of each engine, and the engine's first tuner."""


@dataclass(frozen=True, kw_only=True)
class OtherRuntime:
    """A runtime that was faster than the compiled files, which the bundle contains nevertheless."""

    name: str
    """``onnxruntime`` or ``openvino``; readers use the compiled files if they do not know it."""
    version: str
    """With which it was measured."""
    model: str
    """Name of the file that it runs."""
    threads: int
    precision: str = "f32"
    options: dict[str, str] = field(default_factory=dict)
    """As the runtime names them."""

    @property
    def requirement(self) -> str:
        """Return the package that it needs, as pip names it."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    model_digest: ModelDigest
    """sha256 of the uploaded ONNX file in hex."""
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
    """Name and version of the program that wrote the bundle."""
    executor: str = ""
    """``graph``, TVM 0.19's graph executor, or ``vm``, Relax's virtual machine; default: the engine's."""
    format: str = "shared"
    """``shared``, ``wheel``, ``onnx``, ``static``, ``tvm``, ``object`` or ``system-lib``, see
    ``domain.jobs.BundleFormat``."""
    tuner: str | None = None
    """Tuner of the records, empty without records; default, for old bundles: the engine's first tuner."""
    needs_tvm: str = ""
    """What the model needs TVM for, if it has no ``libmodel.so``; set by ``write``."""
    runtime: OtherRuntime | None = None
    """What the bundle runs with where it is installed; None for the compiled files."""
    sizes: tuple[Size, ...] = ()
    """Entry points of the library, if it has several. ``inputs`` and ``outputs`` then name the sizes that vary."""
    padding: dict[str, float] = field(default_factory=dict)
    """Value by input, with which the library pads it up to the next of ``sizes``."""
    files: dict[str, str] = field(default_factory=dict)
    """sha256 of every file except the manifest, in hex; set by ``write``."""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        executor, tuner = ENGINES.get(self.toolchain.get("engine", ""), ("graph", "autotvm"))
        object.__setattr__(self, "executor", self.executor or executor)
        object.__setattr__(self, "tuner", tuner if self.tuner is None else self.tuner)

    @property
    def engine(self) -> str:
        """Return the name of the engine that runs it. Raises KeyError for an unknown executor."""
        return {executor: engine for engine, (executor, _) in ENGINES.items()}[self.executor]
