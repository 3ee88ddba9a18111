"""Replacement of Fourier transforms by products with the matrix of their waves: ``DFT`` and ``STFT``."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import Declined, Replacements, replace

_METHODS = {("", "DFT"): "_transform", ("", "STFT"): "_frames"}
OPERATORS = frozenset(operator for _, operator in _METHODS)
_LONGEST = 2048
"""Most samples of a transform: the matrix has a column for each frequency."""
_AXIS_AS_INPUT = 20
"""First operator set whose ``DFT`` has its axis as an input, by default the last one of the samples."""


class _Spectra(Replacements):
    methods = _METHODS

    def _transform(self, node: onnx.NodeProto) -> None:
        """Emit a product of all samples, real and imaginary parts side by side."""
        name, length, axis = [*node.input, "", ""][:3]
        shape = self._e.shapes[name]
        rank = len(shape)
        place = self._axis(node, axis)
        is_inverse, is_onesided = (bool(graphs.attribute(node, each, 0)) for each in ("inverse", "onesided"))
        if place is None or (is_inverse and is_onesided) or shape[-1] > 2:
            raise Declined
        place, count = place % rank, shape[place]
        wanted = self._number(length) if length else count
        if wanted != count or count > _LONGEST or place == rank - 1:
            raise Declined
        bins = count // 2 + 1 if is_onesided else count
        cosines, sines = _waves(count, bins, 1 if is_inverse else -1) / (count if is_inverse else 1)
        # Indexed by sample, its part, frequency, and its part.
        matrix = np.stack([np.stack([cosines, sines], -1), np.stack([-sines, cosines], -1)], axis=1)
        others = [each for each in range(rank - 1) if each != place]
        order = [*others, place, rank - 1]
        outer = [shape[each] for each in others]
        moved = self._e.emit("Transpose", [name], perm=order)
        flat = self._e.reshape(moved, (*outer, count * shape[-1]))
        product = self._e.emit("MatMul", [flat, self._e.constant(matrix[:, : shape[-1]].reshape(-1, bins * 2))])
        spread = self._e.reshape(product, (*outer, bins, 2))
        self._e.emit("Transpose", [spread], node.output[0], perm=[int(each) for each in np.argsort(order)])

    def _axis(self, node: onnx.NodeProto, name: str) -> int | None:
        if self._e.opset < _AXIS_AS_INPUT:
            return int(graphs.attribute(node, "axis", 1))
        return self._number(name) if name else -2

    def _number(self, name: str) -> int | None:
        value = self._e.value(name)
        return None if value is None else int(value.reshape(-1)[0])

    def _frames(self, node: onnx.NodeProto) -> None:
        """Emit a convolution whose kernels are the waves in the window."""
        name, step, window, length = [*node.input, "", ""][:4]
        shape = self._e.shapes[name]
        shaped: Any = self._e.value(window) if window else None
        moved, wanted = self._number(step), self._number(length)
        if moved is None or (window and shaped is None) or (length and wanted is None) or shape[2:] not in ((), (1,)):
            raise Declined
        count = wanted or shaped.size
        shaped = np.ones(count) if shaped is None else shaped
        if count > _LONGEST or shaped.size != count:
            raise Declined
        bins = count // 2 + 1 if graphs.attribute(node, "onesided", 1) else count
        kernels = np.stack(_waves(count, bins, -1), -1) * shaped.reshape(-1, 1, 1)
        signal = self._e.reshape(name, (shape[0], 1, shape[1]))
        weight = self._e.constant(kernels.reshape(count, 1, bins * 2).transpose(2, 1, 0))
        found = self._e.emit("Conv", [signal, weight], strides=[moved])
        frames = (shape[1] - count) // moved + 1
        turned = self._e.emit("Transpose", [found], perm=(0, 2, 1))
        self._e.reshape(turned, (shape[0], frames, bins, 2), node.output[0])


def _waves(count: int, bins: int, sign: int) -> NDArray[np.float64]:
    """Return the cosines and sines of every sample at every frequency, ``[2, count, bins]``."""
    # Whole turns are left out first: large angles lose precision.
    turns = np.outer(np.arange(count), np.arange(bins)) % count / count
    return np.stack([np.cos(2 * np.pi * turns), sign * np.sin(2 * np.pi * turns)])


def apply(model: onnx.ModelProto) -> int:
    """Replace transforms of constant lengths and return their number."""
    return replace(model, _Spectra)
