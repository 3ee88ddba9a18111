"""Libraries of several sizes: with entry points for several of the inputs, or with outputs whose size a run decides."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

from tunesmith.runtime import interface, loading
from tunesmith.runtime.backends import RunError
from tunesmith.runtime.libraries import Library, words
from tunesmith.runtime.tensors import NoSuchSize, Tensor

_MOST_KNOWN = 64
"""Combinations of input shapes whose outputs' shapes are remembered."""
_Shapes = tuple[tuple[int, ...], ...]


class SizedLibrary(Library):
    """A session of all entry points."""

    def __init__(self, api: interface.Api, options: interface.Options) -> None:
        """Raises LoadError."""
        self._options = options
        all_entries = interface.Options(interface.ALL_ENTRIES, options.threads, options.spin, options.pin)
        super().__init__(api, all_entries)
        described = api.sizes.contents
        count = described.dimension_count
        self._dimensions = [described.dimensions[place].name.decode() for place in range(count)]
        values = described.values[: count * self._description.entry_count]
        self.sizes = tuple(
            dict(zip(self._dimensions, values[start : start + count], strict=True))
            for start in range(0, len(values), count)
        )
        self._input_axes = [
            described.input_axes[place][: len(each.info.shape)] for place, each in enumerate(self.inputs)
        ]
        output_axes = [described.output_axes[place][: len(each.info.shape)] for place, each in enumerate(self.outputs)]
        self.inputs = [self._named(*each) for each in zip(self.inputs, self._input_axes, strict=True)]
        self.outputs = [self._named(*each) for each in zip(self.outputs, output_axes, strict=True)]
        entries = [self._description.entries[place] for place in range(self._description.entry_count)]
        self.outputs = [_varying(each, place, entries) for place, each in enumerate(self.outputs)]
        self._known: dict[_Shapes, tuple[Any, list[tuple[int, ...]]]] = {}

    def output_shapes(self, inputs: list[Any]) -> list[tuple[int, ...] | None]:
        return list(self._shapes(inputs)[1])

    def run(self, inputs: list[Any], outputs: list[Any] | None) -> list[Any]:
        given, shapes = self._shapes(inputs)
        if outputs is None:
            outputs = [each.empty(shape) for each, shape in zip(self.outputs, shapes, strict=True)]
        arguments = (words(inputs), given, len(inputs), words(outputs), len(outputs))
        self._require(self._api.run_shapes(self._session, *arguments))
        return outputs

    def repeated(self, inputs: list[Any]) -> Callable[[], None]:
        given, shapes = self._shapes(inputs)
        held = [each.empty(array.shape) for each, array in zip(self.inputs, inputs, strict=True)]
        for array, content in zip(held, inputs, strict=True):
            array[...] = content
        made = [each.empty(shape) for each, shape in zip(self.outputs, shapes, strict=True)]
        run, arguments = self._api.run_shapes, (self._session, words(held), given, len(held), words(made), len(made))

        # ``arrays`` keeps them alive: C's description does not.
        def once(arrays: tuple[list[Any], list[Any]] = (held, made)) -> None:  # noqa: ARG001
            self._require(run(*arguments))

        return once

    def profile(self, inputs: list[Any]) -> list[tuple[str, float]]:
        size = {
            self._dimensions[axis]: length
            for axes, array in zip(self._input_axes, inputs, strict=True)
            for axis, length in zip(axes, array.shape, strict=True)
            if axis >= 0
        }
        self._shapes(inputs)
        if size not in self.sizes:
            raise NoSuchSize(f"only sizes of entry points can be profiled, not {_text(size)}")
        options = interface.Options(self.sizes.index(size), *(getattr(self._options, name) for name in _COMMON))
        try:
            entry = Library(self._api, options)
        except loading.LoadError as error:
            raise RunError(str(error)) from error
        try:
            entry.profile(inputs)  # The first run also touches the memory.
            return entry.profile(inputs)
        finally:
            entry.close()

    def _named(self, tensor: Tensor, axes: Sequence[int]) -> Tensor:
        """Return a tensor with the names of dimensions as sizes."""
        name, shape, _, dtype = tensor.info
        sizes = [size if axis < 0 else self._dimensions[axis] for size, axis in zip(shape, axes, strict=True)]
        return Tensor(name, dtype, sizes)

    def _shapes(self, inputs: list[Any]) -> tuple[Any, list[tuple[int, ...]]]:
        """Return C's description of the inputs' shapes, and the shapes of the outputs. Raises NoSuchSize, RunError."""
        key = tuple([array.shape for array in inputs])
        known = self._known.get(key)
        if known is None:
            given, made = _pointers(key), _pointers([(0,) * len(each.info.shape) for each in self.outputs])
            self._require(self._api.shapes(self._session, given, len(key), made, len(self.outputs)))
            found = [tuple(made[place][: len(each.info.shape)]) for place, each in enumerate(self.outputs)]
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = given, found
        return known

    def _require(self, status: int) -> None:
        if status == interface.NO_SUCH_SIZE:
            raise NoSuchSize(self._error())
        if status:
            raise RunError(self._error())


_COMMON = ("threads", "spin", "pin")


class OpenLibrary(Library):
    """A library whose runs decide the shapes of outputs. Its own description has the largest."""

    def __init__(self, api: interface.Api, options: interface.Options) -> None:
        """Raises LoadError."""
        super().__init__(api, options)
        open_axes = api.sizes.contents.open_axes
        self._largest = self.outputs
        self.outputs = [_open(each, open_axes[place]) for place, each in enumerate(self._largest)]

    def run(self, inputs: list[Any], outputs: list[Any] | None) -> list[Any]:
        if outputs is not None:
            return super().run(inputs, outputs)
        made, shapes = [each.empty() for each in self._largest], self._room()
        self._call(self._api.run_open, inputs, made, shapes)
        return [_first(array, shapes[place]) for place, array in enumerate(made)]

    def repeated(self, inputs: list[Any]) -> Callable[[], None]:
        return self._repeated(self._api.run_open, inputs, self._largest, self._room())

    def _room(self) -> Any:
        """Return room for the shapes of the outputs."""
        return _pointers([(0,) * len(each.info.shape) for each in self._largest])


def _open(tensor: Tensor, axes: Any) -> Tensor:
    name, shape, _, dtype = tensor.info
    return Tensor(name, dtype, [size if axes[axis] < 0 else None for axis, size in enumerate(shape)])


def _first(array: Any, sizes: Any) -> Any:
    """Return the beginning of an array as one of another shape."""
    shape = sizes[: array.ndim]
    found = array.reshape(-1)[: math.prod(shape)].reshape(shape)
    # A view keeps the memory of the largest.
    return found.copy() if 2 * found.size < array.size else found


def _varying(tensor: Tensor, place: int, entries: Sequence[Any]) -> Tensor:
    """Return an output with None as sizes that differ between entry points and are no dimension's."""
    name, shape, _, dtype = tensor.info
    sizes = [
        size if isinstance(size, str) or len({entry.outputs[place].shape[axis] for entry in entries}) == 1 else None
        for axis, size in enumerate(shape)
    ]
    return Tensor(name, dtype, sizes)


def _pointers(shapes: Sequence[Sequence[int]]) -> Any:
    """Return shapes as C has them. The arrays live as long as the result."""
    # C has no empty arrays.
    arrays = [(ctypes.c_int64 * max(1, len(shape)))(*shape) for shape in shapes]
    pointer = ctypes.POINTER(ctypes.c_int64)
    return (pointer * max(1, len(arrays)))(*[ctypes.cast(each, pointer) for each in arrays])


def _text(size: dict[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in size.items())
