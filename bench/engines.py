"""Engines from the usual home folder, for benchmarks."""

from __future__ import annotations

from pathlib import Path

from tuner.host import catalogue, environments
from tuner.host.inspection import Inspector
from tuner.host.session import EngineSession, Limits

PREPARE_SECONDS = 300.0
BUILD_SECONDS = 1800.0


def start(name: str, home: Path, folder: Path) -> EngineSession:
    """Start an engine that may write in the folder; its log there is ``NAME.log``. Raises EngineError."""
    spec, limits = catalogue.get(name), Limits(writable=(str(folder.absolute()),))
    python, log = environments.interpreter(spec, home), folder / f"{name}.log"
    return EngineSession.start(spec, python, log_path=log, home=home, limits=limits)


def inspector(home: Path) -> Inspector:
    """Return an inspector that prepares models as jobs do. Raises EngineNotInstalled."""
    spec = catalogue.get("onnx")
    return Inspector(spec=spec, python=environments.interpreter(spec, home), home=home, seconds=PREPARE_SECONDS)


def build_untuned(
    engine: EngineSession, model: Path, folder: Path, *, threads: int, bundle_format: str = "shared"
) -> Path:
    """Compile a prepared model for this machine without records; return ``folder``. Raises EngineError."""
    params = {
        "model": str(model), "target": f"llvm -mcpu={engine.hello['mcpu']}", "threads": threads, "precision": "f32",
        "rewrite": False, "tuner": None, "options": {}, "format": bundle_format, "records": None,
        "out_dir": str(folder),
    }  # fmt: skip
    engine.request("compile", params, timeout=BUILD_SECONDS)
    return folder
