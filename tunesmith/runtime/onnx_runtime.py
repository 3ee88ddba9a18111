"""ONNX Runtime as what runs a session, for bundles whose benchmark found it faster than the library."""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunesmith.runtime import loading
from tunesmith.runtime.backends import Backend, BackendUnavailable, RunError
from tunesmith.runtime.tensors import Tensor

_SEVERITY_ERROR = 3
_KERNEL = "_kernel_time"
"""How ONNX Runtime's profiles mark the events of operators."""


class OnnxRuntime(Backend):
    """ONNX Runtime with the options of the benchmark, on the bundle's prepared model."""

    def __init__(
        self, path: str | os.PathLike[str], digest: str | None, *, threads: int | None, spin: int | None
    ) -> None:
        """Raises BackendUnavailable, and LoadError for a damaged bundle."""
        try:
            import onnxruntime
        except Exception as error:  # A broken installation may raise anything.
            raise BackendUnavailable(f"onnxruntime cannot be imported ({error}); pip install onnxruntime") from error
        self._onnxruntime, self._path, self._digest, self._spin = onnxruntime, path, digest, spin
        self.name = f"onnxruntime {onnxruntime.__version__}"
        with loading.model(path, digest) as (facts, file):
            self._facts = facts
            self._threads = threads or min(facts.threads, _usable_cores())
            self._session: Any = self._opened(file)
        self._process = os.getpid()
        self.inputs = [Tensor(*each) for each in facts.inputs]
        self.outputs = [Tensor(*each) for each in facts.outputs]
        self._names = [output.name for output in self.outputs]

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def metadata(self) -> dict[str, str]:
        return {"model": self._facts.model_digest, "toolchain": self.name, "target": self._facts.target}

    def run(self, inputs: list[Any], outputs: list[Any] | None) -> list[Any]:
        names = self._names
        if outputs is not None:
            names = [name for name, array in zip(names, outputs, strict=True) if array is not None]
        feed = {each.name: array for each, array in zip(self.inputs, inputs, strict=True)}
        made = _run(self._usable(), names, feed)
        if outputs is None:
            return made
        for array, result in zip((array for array in outputs if array is not None), made, strict=True):
            array[...] = result
        return outputs

    def repeated(self, inputs: list[Any]) -> Callable[[], None]:
        session, feed = self._usable(), {each.name: array for each, array in zip(self.inputs, inputs, strict=True)}

        def once() -> None:
            _run(session, None, feed)

        return once

    def profile(self, inputs: list[Any]) -> list[tuple[str, float]]:
        feed = {each.name: array for each, array in zip(self.inputs, inputs, strict=True)}
        with tempfile.TemporaryDirectory(prefix="tunesmith-profile-") as folder:
            session = self._reopened(profile=str(Path(folder) / "profile"))
            _run(session, None, feed)  # The first run also allocates.
            _run(session, None, feed)
            events = json.loads(Path(session.end_profiling()).read_text())
        named = [event for event in events if event.get("cat") == "Node" and event["name"].endswith(_KERNEL)]
        last = named[len(named) // 2 :]
        return [(event["name"].removesuffix(_KERNEL), event["dur"] * 1e-6) for event in last]

    def close(self) -> None:
        self._session = None

    def _usable(self) -> Any:
        """Return the session, in a forked process a new one: the threads of the old one are not there."""
        if self._threads > 1 and self._process != os.getpid():
            # Its destructor would wait for these threads for ever.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session))
            self._session, self._process = self._reopened(), os.getpid()
        return self._session

    def _reopened(self, profile: str | None = None) -> Any:
        """Raises RunError."""
        try:
            with loading.model(self._path, self._digest) as (_, file):
                return self._opened(file, profile)
        except (BackendUnavailable, loading.LoadError) as error:
            raise RunError(f"the model cannot be loaded again: {error}") from error

    def _opened(self, file: Path, profile: str | None = None) -> Any:
        """Raises BackendUnavailable."""
        options = self._onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _SEVERITY_ERROR
        if self._spin == 0:
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if profile:
            options.enable_profiling, options.profile_file_prefix = True, profile
        try:
            return self._onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # Its error classes derive directly from Exception.
            raise BackendUnavailable(f"{self.name} cannot load the model: {str(error)[:500]}") from error


def _run(session: Any, names: list[str] | None, feed: dict[str, Any]) -> list[Any]:
    try:
        return list(session.run(names, feed))
    except Exception as error:  # Its error classes derive directly from Exception.
        raise RunError(f"ONNX Runtime cannot run the model: {str(error)[:1500]}") from error


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
