"""The engine that inspects uploads, kept for many of them: a process for each would take minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from domain import errors
from tuner.host import catalogue
from tuner.host.inspection import Inspector
from tuner.host.session import EngineSession

ENDED = "reader_ended"
TYPED = ("invalid_model", "unsupported_operators", "unsupported_dtype", "shape_required", "run_failed")
"""Codes with which a file may be refused; any other is a bug of ours."""


class Reader:
    """Under the limits of an upload; starts again after each file that ends it."""

    def __init__(self, python: Path, folder: Path, *, seconds: float = 60.0) -> None:
        self._python, self._folder, self._seconds = python, folder, seconds
        self._spec = catalogue.get("onnx")
        limits = Inspector(spec=self._spec, python=Path()).limits(0)
        self._limits = replace(limits, writable=(str(folder),))
        self._engine: EngineSession | None = None

    def inspect(self, content: bytes) -> str | None:
        """None where it is taken; else the refusal's reason, or ``ENDED``. Raises EngineRequestFailed for a bug."""
        return self._ask("inspect", content)

    def prepare(self, content: bytes) -> str | None:
        """As ``inspect``; the model runs."""
        return self._ask("prepare", content)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def _ask(self, method: str, content: bytes) -> str | None:
        path = self._folder / "model.onnx"
        path.write_bytes(content)
        params = {"path": str(path), "input_shapes": {}, "out_path": str(self._folder / "out.onnx")}
        try:
            self._running().request(method, params, timeout=self._seconds)
        except errors.EngineRequestFailed as error:
            if error.message.startswith("MemoryError"):
                return "memory"
            if error.engine_code not in TYPED or len(error.message) > 2000:
                raise
            return str(error.details.get("reason") or error.engine_code)
        except (errors.EngineCrashed, errors.EngineTimeout):
            return ENDED
        return None

    def _running(self) -> EngineSession:
        if self._engine is None or not self._engine.alive:
            log = self._folder / "engine.log"
            self._engine = EngineSession.start(self._spec, self._python, log_path=log, limits=self._limits)
        return self._engine
