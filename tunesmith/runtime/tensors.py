"""Inputs and outputs of models, and the arrays for them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_ALIGNMENT = 64
"""Bytes; kernels read and write such arrays in place."""
_WORTH_ALIGNING = 4096
"""Bytes; the library copies fewer faster than an array can be aligned."""
_ONNX_NAMES = {"float32": "float", "float64": "double"}


class NoSuchSize(ValueError):
    """The model was not compiled for inputs of these shapes; the text says for which."""


class TensorInfo(NamedTuple):
    """An input or output."""

    name: str
    shape: list[int | str | None]
    """A size that varies, or depends on the inputs' values, is a name or None, as in ONNX Runtime."""
    type: str
    """As ONNX Runtime writes it, such as ``tensor(float)``."""
    dtype: str
    """As numpy writes it."""


class Tensor:
    """An input or output of the model, and the arrays for it."""

    def __init__(self, name: str, dtype: str, shape: Sequence[int | str | None]) -> None:
        self.name = name
        self.info = TensorInfo(name, list(shape), f"tensor({_ONNX_NAMES.get(dtype, dtype)})", dtype)
        self._dtype = np.dtype(dtype)
        self._shape: tuple[Any, ...] = tuple(shape)
        self._bytes = math.prod(size for size in shape if isinstance(size, int)) * self._dtype.itemsize

    @property
    def is_open(self) -> bool:
        """Whether only a run, or the shapes of its inputs, decide the shape."""
        return not all(isinstance(size, int) for size in self._shape)

    def empty(self, shape: tuple[int, ...] | None = None) -> Any:
        """Return an uninitialized array: if it is large, at an aligned address, as numpy's own start anywhere.

        ``shape`` is for tensors with sizes that vary.
        """
        size = self._bytes
        if shape is None:
            shape = self._shape
        else:
            size = math.prod(shape) * self._dtype.itemsize
        if size < _WORTH_ALIGNING:
            return np.empty(shape, self._dtype)
        memory = np.empty(size + _ALIGNMENT, np.uint8)
        start = -address(memory) % _ALIGNMENT
        return np.ndarray(shape, self._dtype, memory, start)

    def contiguous(self, given: Any) -> Any:
        """Return the array, or a contiguous copy. Raises NoSuchSize for another shape, ValueError for another type."""
        array = given if type(given) is np.ndarray else np.asarray(given)
        if array.dtype != self._dtype or not self._fits(array.shape):
            kind = NoSuchSize if array.dtype == self._dtype else ValueError
            raise kind(f"input {self.name} is {self._described()}, not {array.dtype}{list(array.shape)}")
        return array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(array.shape)

    def writable(self, given: Any, shape: tuple[int, ...] | None = None) -> Any:
        """Return the array if an output, of a shape if it varies, can be written to it. Raises ValueError."""
        if (
            not isinstance(given, np.ndarray)
            or given.dtype != self._dtype
            or not (self._fits(given.shape) if shape is None else given.shape == shape)
            or not given.flags.carray
        ):
            wanted = self._described() if shape is None else f"{self.info.dtype}{list(shape)}"
            raise ValueError(f"output {self.name} needs a contiguous, writable array of {wanted}")
        return given

    def _fits(self, shape: tuple[int, ...]) -> bool:
        return shape == self._shape or (
            len(shape) == len(self._shape)
            and all(mine == size or not isinstance(mine, int) for mine, size in zip(self._shape, shape, strict=True))
        )

    def _described(self) -> str:
        return f"{self.info.dtype}{self.info.shape}"


def address(array: Any) -> int:
    if array.flags.writeable and array.nbytes:
        # Cheaper than numpy's ways, which build objects that describe the whole array.
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    return int(array.ctypes.data)
