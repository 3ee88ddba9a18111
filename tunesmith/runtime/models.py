"""A bundle's model in a runtime that its users may have: what ONNX Runtime and OpenVINO have in common."""

from __future__ import annotations

import ctypes
import importlib
import os
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunesmith.runtime import loading
from tunesmith.runtime.backends import Backend, BackendUnavailable, RunError
from tunesmith.runtime.tensors import Tensor


class ModelBackend(Backend):
    """A runtime with the options that its benchmark chose, on the bundle's model."""

    package: str
    """Name of the Python package, as manifests name the runtime."""
    survives_fork = False
    """Whether a session with one thread runs on after a fork; with several, none does."""

    def __init__(
        self, path: str | os.PathLike[str], digest: str | None, *, threads: int | None, spin: int | None
    ) -> None:
        """Raises BackendUnavailable, and LoadError for a damaged bundle."""
        try:
            self._module = importlib.import_module(self.package)
        except Exception as error:  # A broken installation may raise anything.
            raise BackendUnavailable(f"{self.package} cannot be imported ({error})") from error
        self._path, self._digest, self._spin = path, digest, spin
        # OpenVINO adds the build's number to the version.
        self.name = f"{self.package} {str(self._module.__version__).partition('-')[0]}"
        with loading.model(path, digest, runtime=self.package) as (facts, file):
            self._facts = facts
            self._threads = threads or min(facts.threads, _usable_cores())
            self._session = self._opened(file)
        self._process = os.getpid()
        self.inputs = [Tensor(*each) for each in facts.inputs]
        self.outputs = [Tensor(*each) for each in facts.outputs]

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def metadata(self) -> dict[str, str]:
        return {"model": self._facts.model_digest, "toolchain": self.name, "target": self._facts.target}

    def run(self, inputs: list[Any], outputs: list[Any] | None) -> list[Any]:
        names = [each.name for each in self.outputs]
        if outputs is not None:
            names = [name for name, array in zip(names, outputs, strict=True) if array is not None]
        made = self._computed(self._usable(), names, self._feed(inputs))
        if outputs is None:
            return made
        for array, result in zip((array for array in outputs if array is not None), made, strict=True):
            array[...] = result
        return outputs

    def repeated(self, inputs: list[Any]) -> Callable[[], None]:
        session, feed = self._usable(), self._feed(inputs)

        def once() -> None:
            self._computed(session, None, feed)

        return once

    def profile(self, inputs: list[Any]) -> list[tuple[str, float]]:
        try:
            with loading.model(self._path, self._digest, runtime=self.package) as (_, file):
                return self._profiled(file, self._feed(inputs))
        except (BackendUnavailable, loading.LoadError) as error:
            raise RunError(f"the model cannot be loaded again: {error}") from error

    def close(self) -> None:
        self._session = None

    @abstractmethod
    def _opened(self, file: Path) -> Any:
        """Load the model. Raises BackendUnavailable."""

    @abstractmethod
    def _computed(self, session: Any, names: list[str] | None, feed: dict[str, Any]) -> list[Any]:
        """Run and return the named outputs; None: whatever costs least. Raises RunError."""

    @abstractmethod
    def _profiled(self, file: Path, feed: dict[str, Any]) -> list[tuple[str, float]]:
        """Profile a new session. Raises BackendUnavailable, RunError."""

    def _unknown(self, option: str) -> BackendUnavailable:
        return BackendUnavailable(f"this release does not know the option {option!r} of {self.package}")

    def _feed(self, inputs: list[Any]) -> dict[str, Any]:
        return {each.name: array for each, array in zip(self.inputs, inputs, strict=True)}

    def _usable(self) -> Any:
        """Return the session, in a forked process a new one: the threads of the old one are not there."""
        if self._process != os.getpid() and (self._threads > 1 or not self.survives_fork):
            # Its destructor would wait for these threads for ever.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session))
            try:
                with loading.model(self._path, self._digest, runtime=self.package) as (_, file):
                    self._session = self._opened(file)
            except (BackendUnavailable, loading.LoadError) as error:
                raise RunError(f"the model cannot be loaded again: {error}") from error
            self._process = os.getpid()
        return self._session


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
