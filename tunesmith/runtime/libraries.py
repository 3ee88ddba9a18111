"""A bundle's library as what runs a session."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

from tunesmith.runtime import interface, loading
from tunesmith.runtime.backends import Backend, RunError
from tunesmith.runtime.tensors import Tensor, address


def opened(
    path: str | os.PathLike[str], digest: str | None, *, threads: int | None, spin: int | None, pin: bool
) -> Library:
    """Load a library and create a session of all its entry points. Raises LoadError."""
    api = loading.load(path, digest)
    # Zero is the default in C.
    options = interface.Options(entry=0, threads=threads or 0, spin=0 if spin is None else spin or -1, pin=int(pin))
    if api.version > 1 and api.sizes.contents.dimension_count:
        # Most libraries have one size.
        from tunesmith.runtime import sizes

        return sizes.SizedLibrary(api, options)
    if api.version > 2 and api.sizes.contents.open_axes:
        from tunesmith.runtime import sizes

        return sizes.OpenLibrary(api, options)
    return Library(api, options)


class Library(Backend):
    """The model's own machine code."""

    name = "library"

    def __init__(self, api: interface.Api, options: interface.Options) -> None:
        """Raises LoadError."""
        self._session = ctypes.c_void_p()
        self._api = api
        if api.create(ctypes.byref(options), ctypes.byref(self._session)):
            raise loading.LoadError(self._error())
        self._description = api.description.contents
        entry = self._description.entries[max(options.entry, 0)]
        self.inputs = [_tensor(entry.inputs[place]) for place in range(entry.input_count)]
        self.outputs = [_tensor(entry.outputs[place]) for place in range(entry.output_count)]
        self._kernels = [(entry.kernels[place] or b"").decode() for place in range(entry.kernel_count)]

    @property
    def threads(self) -> int:
        return int(self._api.threads(self._session))

    @property
    def metadata(self) -> dict[str, str]:
        names = ("model", "toolchain", "target")
        return {name: (getattr(self._description, name) or b"").decode() for name in names}

    def run(self, inputs: list[Any], outputs: list[Any] | None) -> list[Any]:
        made = [each.empty() for each in self.outputs] if outputs is None else outputs
        self._call(self._api.run, inputs, made)
        return made

    def repeated(self, inputs: list[Any]) -> Callable[[], None]:
        return self._repeated(self._api.run, inputs, self.outputs)

    def _repeated(self, run: Any, inputs: list[Any], outputs: Sequence[Tensor], *more: Any) -> Callable[[], None]:
        """Return a function that calls one of C's that runs, with ``more`` arguments behind the outputs."""
        held = [each.empty() for each in self.inputs]
        for array, given in zip(held, inputs, strict=True):
            array[...] = given
        made = [each.empty() for each in outputs]
        arguments = (self._session, words(held), len(held), words(made), len(made), *more)

        # ``arrays`` keeps them alive: C's description does not.
        def once(arrays: tuple[list[Any], list[Any]] = (held, made)) -> None:  # noqa: ARG001
            if run(*arguments):
                raise RunError(self._error())

        return once

    def profile(self, inputs: list[Any]) -> list[tuple[str, float]]:
        times = (ctypes.c_uint64 * len(self._kernels))()
        unwanted = [None] * len(self.outputs)
        self._call(self._api.profile, inputs, unwanted, times, len(self._kernels))
        return [(name, nanoseconds * 1e-9) for name, nanoseconds in zip(self._kernels, times, strict=True)]

    def close(self) -> None:
        session, self._session = self._session, ctypes.c_void_p()
        if session:
            self._api.close(session)

    def __del__(self) -> None:
        self.close()

    def _call(self, function: Any, inputs: list[Any], outputs: Sequence[Any], *more: Any) -> None:
        if function(self._session, words(inputs), len(inputs), words(outputs), len(outputs), *more):
            raise RunError(self._error())

    def _error(self) -> str:
        return (self._api.error() or b"").decode(errors="replace")


def _tensor(described: Any) -> Tensor:
    shape = [int(described.shape[place]) for place in range(described.rank)]
    return Tensor(described.name.decode(), described.dtype.decode(), shape)


def words(arrays: Sequence[Any]) -> Any:
    """Return C's description of arrays, which it does not keep alive; None is an output that is not wanted."""
    words: list[int] = []
    for array in arrays:
        words += (0, 0) if array is None else (address(array), array.nbytes)
    return (ctypes.c_uint64 * len(words))(*words)
