"""Execution and timing of compiled files with the Relax virtual machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relax import cuda
from tuner.engines.relax.compiling import SIGNATURE
from tuner.engines.relax.release import RELEASE
from tuner.engines.runtime import compiling, running

_ENTRY = "main"


class Network(running.Network):
    def __init__(self, folder: Path, library_on_device: Callable[[str], tuple[Any, Any]]) -> None:
        """``library_on_device(kind)`` loads the library on a ``cpu`` or ``cuda`` device and returns both."""
        signature = json.loads((folder / SIGNATURE).read_text())
        self.inputs = signature["inputs"]
        self.outputs = [spec["name"] for spec in signature["outputs"]]
        library, self._device = library_on_device(signature["device"])
        self._machine = relax.VirtualMachine(library, self._device)
        self._fed: list[Any] = []

    def feed(self, arrays: running.Arrays) -> None:
        self._fed = [tvm.runtime.tensor(arrays[spec["name"]], self._device) for spec in self.inputs]

    def run(self) -> Sequence[Any]:
        return _arrays(self._machine[_ENTRY](*self._fed))

    def sample(self, number: int, repeat: int) -> list[float]:
        timer = self._machine.time_evaluator(_ENTRY, self._device, number=number, repeat=repeat)
        return [float(seconds) for seconds in timer(*self._fed).results]


class RemoteNetwork(Network):
    """Network in an RPC session, which cannot return tuples: inputs and outputs stay remote and are fetched singly."""

    def feed(self, arrays: running.Arrays) -> None:
        super().feed(arrays)
        self._machine.set_input(_ENTRY, *self._fed)

    def run(self) -> Sequence[Any]:
        self._machine.invoke_stateful(_ENTRY)
        return _arrays(self._machine.get_outputs(_ENTRY))

    def sample(self, number: int, repeat: int) -> list[float]:
        timer = self._machine.time_evaluator("invoke_stateful", self._device, number=number, repeat=repeat)
        return [float(seconds) for seconds in timer(_ENTRY).results]


def _arrays(answer: Any) -> list[Any]:
    """Return the arrays of a run's result, which is a tensor or several."""
    tensors = [answer] if isinstance(answer, tvm.runtime.Tensor) else answer
    return [tensor.numpy() for tensor in tensors]


def _device(kind: str) -> Any:
    if kind == "cuda" and not cuda.device_exists():
        raise EngineFailure("no_device", "the bundle needs a CUDA GPU, but this machine has none")
    return tvm.device(kind, 0)


BUNDLES = running.Bundles(
    RELEASE,
    (compiling.LIBRARY, SIGNATURE),
    load=lambda folder, library: Network(folder, lambda kind: (library, _device(kind))),
    load_remotely=lambda folder, session, library: RemoteNetwork(folder, lambda kind: (library, session.device(kind))),
)
