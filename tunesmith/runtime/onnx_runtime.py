"""ONNX Runtime as what runs a session, for bundles whose benchmark found it faster than the library."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tunesmith.runtime import loading
from tunesmith.runtime.backends import BackendUnavailable, RunError
from tunesmith.runtime.models import ModelBackend

_SEVERITY_ERROR = 3
_KERNEL = "_kernel_time"
"""How ONNX Runtime's profiles mark the events of operators."""
_LEVEL, _ARENA, _SPINNING = "graph_optimization_level", "enable_cpu_mem_arena", "session.intra_op.allow_spinning"
"""Options that a manifest may have; ONNX Runtime's own defaults hold for the others."""
_LEVELS = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}


class OnnxRuntime(ModelBackend):
    package = "onnxruntime"
    survives_fork = True

    def _opened(self, file: Path, profile: str | None = None) -> Any:
        options = self._module.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _SEVERITY_ERROR
        for name, value in self._facts.options.items():
            if name == _LEVEL and value in _LEVELS:
                options.graph_optimization_level = getattr(self._module.GraphOptimizationLevel, _LEVELS[value])
            elif name == _ARENA and value in ("0", "1"):
                options.enable_cpu_mem_arena = value == "1"
            elif name != _SPINNING or value not in ("0", "1"):
                raise self._unknown(f"{name}={value}")
        spinning = self._facts.options.get(_SPINNING) if self._spin is None else str(min(self._spin, 1))
        if spinning == "0":
            options.add_session_config_entry(_SPINNING, spinning)
        if profile:
            options.enable_profiling, options.profile_file_prefix = True, profile
        try:
            return self._module.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # Its error classes derive directly from Exception.
            raise BackendUnavailable(f"{self.name} cannot load the model: {str(error)[:500]}") from error

    def _computed(self, session: Any, names: list[str] | None, feed: dict[str, Any]) -> list[Any]:
        try:
            return list(session.run(names, feed))
        except Exception as error:  # Its error classes derive directly from Exception.
            raise RunError(f"ONNX Runtime cannot run the model: {str(error)[:1500]}") from error

    def _profiled(self, file: Path, feed: dict[str, Any]) -> list[tuple[str, float]]:
        with tempfile.TemporaryDirectory(prefix="tunesmith-profile-") as folder:
            session = self._opened(file, str(Path(folder) / "profile"))
            self._computed(session, None, feed)  # The first run also allocates.
            self._computed(session, None, feed)
            events = json.loads(Path(session.end_profiling()).read_text())
        named = [event for event in events if event.get("cat") == "Node" and event["name"].endswith(_KERNEL)]
        last = named[len(named) // 2 :]
        return [(event["name"].removesuffix(_KERNEL), event["dur"] * 1e-6) for event in last]


class OnnxModel:
    """An ONNX file, for inputs of shapes that a library does not serve."""

    def __init__(self, path: str | os.PathLike[str], threads: int) -> None:
        """Raises LoadError."""
        try:
            self._module = importlib.import_module("onnxruntime")
        except Exception as error:  # A broken installation may raise anything.
            raise loading.LoadError(f"onnxruntime, which otherwise= needs, cannot be imported ({error})") from error
        self._path, self._threads = os.fspath(path), threads
        self._session = self._opened()
        self._process = os.getpid()

    def run(self, names: Sequence[str], feed: Mapping[str, Any]) -> list[Any]:
        """Return the named outputs. Raises RunError."""
        if self._process != os.getpid():
            # The child of a fork has none of its threads, for which its destructor would wait.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session))
            self._session, self._process = self._opened(), os.getpid()
        try:
            return list(self._session.run(list(names), dict(feed)))
        except Exception as error:  # Its error classes derive directly from Exception.
            raise RunError(f"ONNX Runtime cannot run the model: {str(error)[:1500]}") from error

    def _opened(self) -> Any:
        options = self._module.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self._threads, 1
        options.log_severity_level = _SEVERITY_ERROR
        # Its threads would take the CPUs from those of the library.
        options.add_session_config_entry(_SPINNING, "0")
        try:
            return self._module.InferenceSession(self._path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # Its error classes derive directly from Exception.
            raise loading.LoadError(f"ONNX Runtime cannot load {self._path}: {str(error)[:500]}") from error
