"""The engines that this release ships."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from domain import errors

ROOT = Path(__file__).resolve().parents[2]
"""The folder of our packages: working directory and ``PYTHONPATH`` of engines."""


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    name: str
    module: str
    """Run as ``python -m MODULE --event-fd N``."""
    requirements: Path
    """Pinned by hash; its digest is part of the environment's name."""
    shares: str | None = None
    """Engine in whose environment it runs, if it has none of its own."""

    @property
    def environment(self) -> str:
        return self.shares or self.name


def _shipped(name: str) -> EngineSpec:
    return EngineSpec(
        name=name,
        module=f"tuner.engines.{name}",
        requirements=ROOT / "tuner" / "engines" / name / "requirements.txt",
    )


ENGINES = {name: _shipped(name) for name in ("relay", "relax", "onnx")}
"""Engines with environments, which every host installs."""
OPTIONAL = {name: _shipped(name) for name in ("openvino",)}
"""Engines with environments that only some hosts install: runtimes that compete with what is compiled."""
LIBRARY = "library"
"""The engine that runs the libraries of compiled builds, without TVM."""
RUNNING = {"onnxruntime": LIBRARY, "openvino": "openvino"}
"""The engine that runs models in each other runtime."""
_STARTED = {
    **ENGINES,
    **OPTIONAL,
    LIBRARY: replace(ENGINES["onnx"], name=LIBRARY, module="tuner.engines.library", shares="onnx"),
}


def get(name: str) -> EngineSpec:
    """Return an engine's specification. Raises EngineNotInstalled for an unknown name."""
    if name not in _STARTED:
        raise errors.EngineNotInstalled(
            f"there is no engine {name!r}", hint=f"The engines are {' and '.join(sorted(ENGINES | OPTIONAL))}."
        )
    return _STARTED[name]
