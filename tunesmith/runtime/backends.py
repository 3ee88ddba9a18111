"""What runs a session: the port of ``InferenceSession``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from tunesmith.runtime.tensors import Tensor


class RunError(Exception):
    """A run failed; the text says why."""


class BackendUnavailable(Exception):
    """The runtime of the bundle's model cannot run it here; the text says why."""


class Backend(ABC):
    """A loaded model. Arrays are contiguous, and of the shapes and types of ``inputs`` and ``outputs``."""

    name: str
    """``library``, or the package of a runtime and its version."""
    inputs: list[Tensor]
    outputs: list[Tensor]
    sizes: tuple[dict[str, int], ...] = ()
    """The values of the dimensions that vary, for each entry point of a library that has several."""

    @property
    @abstractmethod
    def threads(self) -> int: ...

    @property
    @abstractmethod
    def metadata(self) -> dict[str, str]: ...

    def output_shapes(self, inputs: list[Any]) -> list[tuple[int, ...] | None]:  # noqa: ARG002 - others vary
        """Return the shapes of the outputs for these inputs; None where they do not vary. Raises NoSuchSize."""
        return [None] * len(self.outputs)

    @abstractmethod
    def run(self, inputs: list[Any], outputs: list[Any] | None) -> list[Any]:
        """Write the outputs to ``outputs``, except to places that are None, or return new arrays.

        ``outputs`` has None for outputs whose shapes the run decides.

        Raises RunError, and NoSuchSize.
        """

    @abstractmethod
    def repeated(self, inputs: list[Any]) -> Callable[[], None]:
        """Return a function that runs on these inputs with as little beside the run as possible; it raises RunError.

        Raises NoSuchSize.
        """

    @abstractmethod
    def profile(self, inputs: list[Any]) -> list[tuple[str, float]]:
        """Run once and return the name and seconds of each kernel, in the order of execution.

        Raises RunError, and NoSuchSize for sizes that are not those of an entry point.
        """

    @abstractmethod
    def close(self) -> None: ...
