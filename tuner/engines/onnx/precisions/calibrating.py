"""Ranges of activations, which become the scales of their 8-bit integers.

* ``minmax``: all values. One outlier costs the others their precision.
* ``mse``: the range whose 8-bit numbers have the least mean squared error, rounded and clipped values together, as in
  Choukroun et al., "Low-bit Quantization of Neural Networks for Efficient Inference" (2019).
* ``percentile``: all but one value of ten thousand.
* ``entropy``: the range whose 8-bit histogram loses the least information (Kullback-Leibler divergence), as in Migacz,
  "8-bit Inference with TensorRT" (GTC 2017). ONNX Runtime's calibrator of that name takes histograms of 128 bins, which
  it never narrows, and Python's loops for larger ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from tuner.engines.onnx import arrays, sessions
from tuner.engines.onnx.rewriting import graphs

Ranges = dict[str, tuple[Any, Any]]
"""Least and greatest value of each tensor, float32 numbers."""
MINMAX, MSE, PERCENTILE, ENTROPY = METHODS = ("minmax", "mse", "percentile", "entropy")
_BINS = 2048
_LEVELS = 128
"""Levels of half a range: entropy compares magnitudes."""
_CUTS = 16
"""Ranges that ``mse`` compares: each side as it is, or less by one or more of as many parts."""
_STEP = 16
"""Bins between two ranges that entropy compares."""
_FIRST, _MOST_BYTES = 8, 256 * 1024**2
"""Tensors that a run returns while their sizes are unknown, and bytes later: all of them may fill the memory."""
_LEFT_OUT = 1e-4
"""Share of the values that ``percentile`` leaves out."""


class Calibration:
    """What the tensors of a model hold when it runs on calibration inputs; it runs them once for each question."""

    def __init__(self, model: onnx.ModelProto, tensors: Sequence[str], inputs: Sequence[str], threads: int) -> None:
        self._inputs = inputs
        given = {value.name for value in model.graph.input}
        self._read = [name for name in tensors if name in given]
        self._made = [name for name in tensors if name not in given]
        self._bytes: dict[str, int] = {}
        self._session = sessions.open_session(_with_outputs(model, self._made), threads=threads, level=sessions.BASIC)
        self._minmax: Ranges = {}
        self._magnitudes: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        """Histograms of each tensor: of magnitudes, up to the largest, and of values, between the extremes."""

    def ranges(self, method: str) -> Ranges:
        """Return the ranges by one of ``METHODS``. Raises EngineFailure as ``sessions.run``."""
        if not self._minmax:
            self._collect(self._extend)
        if method == MINMAX:
            return self._minmax
        if not self._magnitudes:
            self._collect(self._count)
        if method == MSE:
            return {name: _least_squares(counts, *self._minmax[name]) for name, counts in self._values.items()}
        narrowed = _percentile if method == PERCENTILE else _entropy
        return {name: self._within(name, narrowed(counts)) for name, counts in self._magnitudes.items()}

    def _collect(self, add: Callable[[str, Any], None]) -> None:
        for path in self._inputs:
            given = arrays.load(path)
            for name in self._read:
                add(name, _finite(given[name]))
            for names in self._groups():
                for name, values in sessions.run(self._session, given, names).items():
                    self._bytes[name] = values.nbytes
                    add(name, _finite(values))

    def _groups(self) -> list[list[str]]:
        """Return the tensors of each run."""
        if len(self._bytes) < len(self._made):
            return [self._made[place : place + _FIRST] for place in range(0, len(self._made), _FIRST)]
        groups: list[list[str]] = []
        room = 0
        for name in self._made:
            if not groups or self._bytes[name] > room:
                groups.append([])
                room = _MOST_BYTES
            groups[-1].append(name)
            room -= self._bytes[name]
        return groups

    def _extend(self, name: str, values: Any) -> None:
        low, high = self._minmax.get(name, (np.float32(0), np.float32(0)))
        self._minmax[name] = (np.float32(values.min(initial=low)), np.float32(values.max(initial=high)))

    def _count(self, name: str, values: Any) -> None:
        counts, _ = np.histogram(np.abs(values), bins=_BINS, range=(0, self._largest(name)))
        self._magnitudes[name] = self._magnitudes.get(name, 0) + counts
        low, high = self._minmax[name]
        counts, _ = np.histogram(values, bins=_BINS, range=(low, high if high > low else low + 1))
        self._values[name] = self._values.get(name, 0) + counts

    def _largest(self, name: str) -> float:
        return float(np.abs(self._minmax[name]).max()) or 1.0

    def _within(self, name: str, bins: int) -> tuple[Any, Any]:
        """Return the range of the values whose magnitudes are in the first ``bins``."""
        low, high = self._minmax[name]
        limit = np.float32(self._largest(name) * bins / _BINS)
        return max(low, -limit), min(high, limit)


def _finite(values: Any) -> Any:
    """Return the values that a range can have, of floating-point numbers."""
    finite = np.isfinite(values)
    return values if finite.all() else values[finite]


def _with_outputs(model: onnx.ModelProto, tensors: Sequence[str]) -> onnx.ModelProto:
    """Return the model with these tensors as outputs."""
    told = graphs.copy(model)
    there = {value.name for value in told.graph.output}
    told.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors if name not in there)
    return told


def _least_squares(counts: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Return the part of the range [low, high], which contains 0, with the least squared error of ``counts``."""
    centers = low + (np.arange(_BINS) + 0.5) * ((high - low) / _BINS)
    parts = np.arange(_CUTS, 0, -1) / _CUTS
    ranges = [(left, right) for left in (low * parts if low < 0 else [low]) for right in high * parts]
    best = min(ranges, key=lambda each: _squared_error(counts, centers, *each))
    return np.float32(best[0]), np.float32(best[1])


def _squared_error(counts: Any, centers: Any, low: Any, high: Any) -> float:
    scale = (high - low) / 255 or 1.0
    zero = np.round(-low / scale)
    rounded = (np.clip(np.round(centers / scale) + zero, 0, 255) - zero) * scale
    return float((counts * np.square(rounded - centers)).sum())


def _percentile(counts: Any) -> int:
    return int(np.searchsorted(np.cumsum(counts), counts.sum() * (1 - _LEFT_OUT))) + 1


def _entropy(counts: Any) -> int:
    candidates = range(_LEVELS, _BINS + 1, _STEP)
    return min(candidates, key=lambda bins: _divergence(counts, bins))


def _divergence(counts: Any, bins: int) -> float:
    """Return how much the distribution of the first ``bins``, larger ones clipped, differs from that in levels."""
    clipped = counts[:bins].astype(np.float64)
    level = np.arange(bins) * _LEVELS // bins
    occupied = counts[:bins] > 0
    sums, numbers = (np.bincount(level, weights=each, minlength=_LEVELS) for each in (clipped, occupied))
    quantized = np.where(occupied, sums[level] / np.maximum(numbers[level], 1), 0.0)
    clipped[-1] += counts[bins:].sum()
    if not quantized.sum() or (clipped[-1] and not quantized[-1]):
        # A value outside of the quantized distribution loses everything.
        return float("inf") if bins < len(counts) else 0.0
    wanted, made = clipped / clipped.sum(), quantized / quantized.sum()
    some = wanted > 0
    return float((wanted[some] * np.log(wanted[some] / made[some])).sum())
