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
_WORTH_ALIGNING = 4096
"""Bytes; the library copies fewer faster than an array can be aligned."""
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


class ModelMetadata(NamedTuple):
    """As ONNX Runtime's; ``custom_metadata_map`` is ``InferenceSession.metadata``."""

    custom_metadata_map: dict[str, str]
    producer_name: str = "tunesmith"
    graph_name: str = ""
    description: str = ""
    domain: str = ""
    graph_description: str = ""
    version: int = 0


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
        self._inputs = [_Tensor(entry.inputs[place]) for place in range(entry.input_count)]
        self._outputs = [_Tensor(entry.outputs[place]) for place in range(entry.output_count)]
        self._names = [output.name for output in self._outputs]
        self._kernels = [(entry.kernels[place] or b"").decode() for place in range(entry.kernel_count)]

    def get_inputs(self) -> list[TensorInfo]:
        return [each.info for each in self._inputs]

    def get_outputs(self) -> list[TensorInfo]:
        return [each.info for each in self._outputs]

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]

    def get_modelmeta(self) -> ModelMetadata:
        return ModelMetadata(custom_metadata_map=self.metadata)

    @property
    def threads(self) -> int:
        return int(self._api.threads(self._session))

    @property
    def metadata(self) -> dict[str, str]:
        """Return ``model``, the sha256 of the ONNX file, ``toolchain`` and ``target``."""
        names = ("model", "toolchain", "target")
        return {name: (getattr(self._description, name) or b"").decode() for name in names}

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: None = None,  # noqa: ARG002 - programs written for ONNX Runtime pass it
        *,
        out: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Return the named outputs, or all, as arrays.

        Inputs are arrays of the model's shapes and types. ``out`` has arrays by name to write outputs to; the others
        are new. Arrays at addresses that are multiples of 64 are not copied. Raises ValueError for unsuitable arrays
        and names, and RunError.
        """
        inputs = self._arrays(input_feed)
        if not output_names and not out:
            outputs = [each.empty() for each in self._outputs]
            self._call(self._api.run, inputs, outputs)
            return outputs
        names = output_names or self._names
        if out and not out.keys() <= set(names):
            raise ValueError(f"out has {', '.join(out)}; the outputs asked for are {', '.join(names)}")
        made = {name: self._output(name, out) for name in names}
        self._call(self._api.run, inputs, [made.get(name) for name in self._names])
        return [made[name] for name in names]

    def time(self, input_feed: Mapping[str, Any], *, number: int = 1, repeat: int = 1) -> list[float]:
        """Return seconds per run, one value per repeat, each the mean of ``number`` runs, after a warm-up run.

        The arrays are prepared beforehand, so that this is the time of the model. Raises as ``run`` does.
        """
        inputs = [each.empty() for each in self._inputs]
        for array, given in zip(inputs, self._arrays(input_feed), strict=True):
            array[...] = given
        outputs = [each.empty() for each in self._outputs]
        self._call(self._api.run, inputs, outputs)
        run, arguments = self._api.run, (self._session, _words(inputs), len(inputs), _words(outputs), len(outputs))
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
        self._call(self._api.profile, self._arrays(input_feed), unwanted, times, len(self._kernels))
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

    def _arrays(self, feed: Mapping[str, Any]) -> list[Any]:
        """Return the inputs in their order as contiguous arrays. Raises ValueError."""
        try:
            arrays = [each.contiguous(feed[each.name]) for each in self._inputs]
        except KeyError:
            arrays = []
        if len(arrays) != len(feed) or len(arrays) != len(self._inputs):
            given, known = ", ".join(feed) or "nothing", ", ".join(each.name for each in self._inputs)
            raise ValueError(f"the model's inputs are {known}; given: {given}")
        return arrays

    def _output(self, name: str, out: Mapping[str, Any] | None) -> Any:
        """Return the caller's array for an output, or a new one. Raises ValueError."""
        for each in self._outputs:
            if each.name == name:
                return each.writable(out[name]) if out and name in out else each.empty()
        raise ValueError(f"the model has no output {name!r}; it has {', '.join(self._names)}")

    def _call(self, function: Any, inputs: list[Any], outputs: list[Any], *more: Any) -> None:
        if function(self._session, _words(inputs), len(inputs), _words(outputs), len(outputs), *more):
            raise RunError(self._error())

    def _error(self) -> str:
        return (self._api.error() or b"").decode(errors="replace")


class _Tensor:
    """An input or output of the model, and the arrays for it."""

    def __init__(self, tensor: Any) -> None:
        dtype = tensor.dtype.decode()
        shape = [int(tensor.shape[place]) for place in range(tensor.rank)]
        self.name: str = tensor.name.decode()
        self.info = TensorInfo(self.name, shape, f"tensor({_ONNX_NAMES.get(dtype, dtype)})", dtype)
        self._dtype, self._shape = np.dtype(dtype), tuple(shape)
        self._bytes = math.prod(shape) * self._dtype.itemsize

    def empty(self) -> Any:
        """Return an uninitialized array: if it is large, at an aligned address, as numpy's own start anywhere."""
        if self._bytes < _WORTH_ALIGNING:
            return np.empty(self._shape, self._dtype)
        memory = np.empty(self._bytes + _ALIGNMENT, np.uint8)
        start = -_address(memory) % _ALIGNMENT
        return np.ndarray(self._shape, self._dtype, memory, start)

    def contiguous(self, given: Any) -> Any:
        """Return the array, or a contiguous copy. Raises ValueError for another shape or type."""
        array = given if type(given) is np.ndarray else np.asarray(given)
        if array.dtype != self._dtype or array.shape != self._shape:
            raise ValueError(f"input {self.name} is {self._described()}, not {array.dtype}{list(array.shape)}")
        return array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(self._shape)

    def writable(self, given: Any) -> Any:
        """Return the array if an output can be written to it. Raises ValueError."""
        if (
            not isinstance(given, np.ndarray)
            or given.dtype != self._dtype
            or given.shape != self._shape
            or not given.flags.carray
        ):
            raise ValueError(f"output {self.name} needs a contiguous, writable array of {self._described()}")
        return given

    def _described(self) -> str:
        return f"{self.info.dtype}{self.info.shape}"


def _words(arrays: Sequence[Any]) -> Any:
    """Return C's description of arrays, which it does not keep alive; None is an output that is not wanted."""
    words: list[int] = []
    for array in arrays:
        words += (0, 0) if array is None else (_address(array), array.nbytes)
    return (ctypes.c_uint64 * len(words))(*words)


def _address(array: Any) -> int:
    if array.flags.writeable and array.nbytes:
        # Cheaper than numpy's ways, which build objects that describe the whole array.
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    return int(array.ctypes.data)
