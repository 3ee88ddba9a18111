"""Sessions with the method set of ``onnxruntime.InferenceSession``."""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from tunesmith.runtime import interface, loading

_ALIGNMENT = 64
"""Bytes; kernels read and write such arrays in place."""
_ONNX_NAMES = {"float32": "float", "float64": "double"}


class RunError(Exception):
    """A run failed; the text says why."""


class TensorInfo(NamedTuple):
    """An input or output."""

    name: str
    shape: list[int]
    type: str
    """As ONNX Runtime writes it, such as ``tensor(float)``."""
    dtype: str
    """As numpy writes it."""


class InferenceSession:
    """A tuned model, ready to run. May be used from several threads, one run at a time, and after a fork."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        spin: int | None = None,
        pin: bool = False,
        digest: str | None = None,
    ) -> None:
        """``path`` is a bundle, a folder with its files, or a ``libmodel.so``.

        ``threads`` defaults to the number that it was tuned for, but at most the CPUs that the process may use. An idle
        thread looks for work ``spin`` times before it sleeps; ``pin`` keeps each on a CPU of its own. ``digest`` is the
        expected sha256 of the file. Raises LoadError, also for a CPU that lacks instructions, and ValueError.
        """
        self._session = ctypes.c_void_p()
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self._api = loading.load(path, digest)
        # Zero is the default in C.
        spinning = 0 if spin is None else spin or -1
        options = interface.Options(entry=0, threads=threads or 0, spin=spinning, pin=int(pin))
        if self._api.create(ctypes.byref(options), ctypes.byref(self._session)):
            raise loading.LoadError(self._error())
        self._description = self._api.description.contents
        entry = self._description.entries[options.entry]
        self._inputs = [_info(entry.inputs[place]) for place in range(entry.input_count)]
        self._outputs = [_info(entry.outputs[place]) for place in range(entry.output_count)]
        self._places = {info.name: place for place, info in enumerate(self._outputs)}
        self._input_names = {info.name for info in self._inputs}
        self._dtypes = [np.dtype(info.dtype) for info in self._inputs]
        self._kernels = [(entry.kernels[place] or b"").decode() for place in range(entry.kernel_count)]

    def get_inputs(self) -> list[TensorInfo]:
        return list(self._inputs)

    def get_outputs(self) -> list[TensorInfo]:
        return list(self._outputs)

    @property
    def threads(self) -> int:
        return int(self._api.threads(self._session))

    @property
    def metadata(self) -> dict[str, str]:
        """Return ``model``, the sha256 of the ONNX file, ``toolchain`` and ``target``."""
        names = ("model", "toolchain", "target")
        return {name: (getattr(self._description, name) or b"").decode() for name in names}

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[Any]:
        """Return the named outputs, or all, as new arrays.

        Inputs are arrays of the model's shapes and types. Raises ValueError for others, and RunError.
        """
        names = [info.name for info in self._outputs] if output_names is None else output_names
        wanted = {self._place(name) for name in names}
        outputs = [_aligned(info) if place in wanted else None for place, info in enumerate(self._outputs)]
        self._call(self._api.run, self._checked(input_feed), outputs)
        return [outputs[self._places[name]] for name in names]

    def time(self, input_feed: Mapping[str, Any], *, number: int = 1, repeat: int = 1) -> list[float]:
        """Return seconds per run, one value per repeat, each the mean of ``number`` runs, after a warm-up run.

        The arrays are prepared beforehand, so that this is the time of the model. Raises as ``run`` does.
        """
        inputs = [_aligned(info) for info in self._inputs]
        for array, given in zip(inputs, self._checked(input_feed), strict=True):
            array[...] = given
        outputs = [_aligned(info) for info in self._outputs]
        self._call(self._api.run, inputs, outputs)
        run, arguments = self._api.run, (self._session, _buffers(inputs), len(inputs), _buffers(outputs), len(outputs))
        samples = []
        for _ in range(repeat):
            started = time.perf_counter()
            for _ in range(number):
                if run(*arguments):
                    raise RunError(self._error())
            samples.append((time.perf_counter() - started) / number)
        return samples

    def profile(self, input_feed: Mapping[str, Any]) -> list[tuple[str, float]]:
        """Run once and return each kernel's name and seconds, in the order of execution. Raises as ``run`` does."""
        times = (ctypes.c_uint64 * len(self._kernels))()
        unwanted = [None] * len(self._outputs)
        self._call(self._api.profile, self._checked(input_feed), unwanted, times, len(self._kernels))
        return [(name, nanoseconds * 1e-9) for name, nanoseconds in zip(self._kernels, times, strict=True)]

    def close(self) -> None:
        """Free the session's memory and threads. No other method may be used afterwards."""
        session, self._session = self._session, ctypes.c_void_p()
        if session:
            self._api.close(session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _checked(self, feed: Mapping[str, Any]) -> list[Any]:
        """Return the inputs in their order as contiguous arrays. Raises ValueError."""
        if feed.keys() != self._input_names:
            given = ", ".join(feed) or "nothing"
            raise ValueError(f"the model's inputs are {', '.join(info.name for info in self._inputs)}; given: {given}")
        arrays = []
        for info, dtype in zip(self._inputs, self._dtypes, strict=True):
            array = np.ascontiguousarray(feed[info.name])
            if array.dtype != dtype or list(np.shape(feed[info.name])) != info.shape:
                given = f"{array.dtype}{list(np.shape(feed[info.name]))}"
                raise ValueError(f"input {info.name} is {info.dtype}{info.shape}, not {given}")
            arrays.append(array)
        return arrays

    def _call(self, function: Any, inputs: list[Any], outputs: list[Any], *more: Any) -> None:
        if function(self._session, _buffers(inputs), len(inputs), _buffers(outputs), len(outputs), *more):
            raise RunError(self._error())

    def _place(self, name: str) -> int:
        try:
            return self._places[name]
        except KeyError:
            raise ValueError(f"the model has no output {name!r}; it has {', '.join(self._places)}") from None

    def _error(self) -> str:
        return (self._api.error() or b"").decode(errors="replace")


def _info(tensor: Any) -> TensorInfo:
    dtype = tensor.dtype.decode()
    shape = [int(tensor.shape[place]) for place in range(tensor.rank)]
    return TensorInfo(tensor.name.decode(), shape, f"tensor({_ONNX_NAMES.get(dtype, dtype)})", dtype)


def _buffers(arrays: Sequence[Any]) -> Any:
    """Return C's description of arrays, which it does not keep alive; None is an output that is not wanted."""
    buffers = (interface.Buffer * len(arrays))()
    for buffer, array in zip(buffers, arrays, strict=True):
        if array is not None:
            buffer.data, buffer.bytes = array.ctypes.data, array.nbytes
    return buffers


def _aligned(info: TensorInfo) -> Any:
    """Return an uninitialized array at an aligned address; numpy's own start anywhere."""
    dtype = np.dtype(info.dtype)
    size = math.prod(info.shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(info.shape)
