"""OpenVINO as what runs a session, for bundles whose benchmark found it faster than the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunesmith.runtime.backends import BackendUnavailable, RunError
from tunesmith.runtime.models import ModelBackend

_OPTIONS = ("INFERENCE_PRECISION_HINT",)
"""Options that a manifest may have."""


def settings(threads: int, *, counts: bool = False) -> dict[str, str]:
    """Return the settings of a session; ``counts`` times every layer."""
    return {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": str(threads),
        "PERF_COUNT": "YES" if counts else "NO",
        # Beside weights of 8 bits it would round activations to 8 bits, too, whatever the precision that is asked for.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    }  # fmt: skip


class OpenVino(ModelBackend):
    package = "openvino"

    def _opened(self, file: Path, *, counts: bool = False) -> Any:
        for name in self._facts.options:
            if name not in _OPTIONS:
                raise self._unknown(name)
        chosen = {**settings(self._threads, counts=counts), **self._facts.options}
        try:
            core = self._module.Core()
            model = core.read_model(str(file))
            # The original model may have dynamic shapes, and those of the bundle are faster.
            model.reshape({name: list(shape) for name, _, shape in self._facts.inputs})
            return core.compile_model(model, "CPU", chosen).create_infer_request()
        except Exception as error:  # Errors of its C++ code come as RuntimeError and others.
            raise BackendUnavailable(f"{self.name} cannot load the model: {str(error)[:500]}") from error

    def _computed(self, session: Any, names: list[str] | None, feed: dict[str, Any]) -> list[Any]:
        try:
            if names is None:
                session.infer(feed, share_inputs=True, share_outputs=True)
                return []
            results = session.infer(feed, share_inputs=True)
            return [results[name] for name in names]
        except Exception as error:  # Errors of its C++ code come as RuntimeError and others.
            raise RunError(f"OpenVINO cannot run the model: {str(error)[:1500]}") from error

    def _profiled(self, file: Path, feed: dict[str, Any]) -> list[tuple[str, float]]:
        session = self._opened(file, counts=True)
        self._computed(session, None, feed)  # The first run also allocates.
        self._computed(session, None, feed)
        return [
            (f"{node.node_name} ({node.exec_type})", node.real_time.total_seconds())
            for node in session.get_profiling_info()
            if node.status == node.EXECUTED
        ]
