"""Ranges of activations, which become the scales of their 8-bit integers.

* ``minmax``: all values. One outlier costs the others their precision.
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

Ranges = dict[str, tuple[Any, Any]]
"""Least and greatest value of each tensor, float32 numbers."""
MINMAX, PERCENTILE, ENTROPY = METHODS = ("minmax", "percentile", "entropy")
_BINS = 2048
_LEVELS = 128
"""Levels of half a range: entropy compares magnitudes."""
_STEP = 16
"""Bins between two ranges that entropy compares."""
_LEFT_OUT = 1e-4
"""Share of the values that ``percentile`` leaves out."""


class Calibration:
    """What the tensors of a model hold when it runs on calibration inputs; it runs them once for each question."""

    def __init__(self, model: onnx.ModelProto, tensors: Sequence[str], inputs: Sequence[str], threads: int) -> None:
        self._inputs, self._tensors = inputs, tensors
        self._given = {value.name for value in model.graph.input}
        self._session = sessions.open_session(_with_outputs(model, tensors), threads=threads, level=sessions.BASIC)
        self._minmax: Ranges = {}
        self._histograms: dict[str, Any] = {}

    def ranges(self, method: str) -> Ranges:
        """Return the ranges by one of ``METHODS``. Raises EngineFailure as ``sessions.run``."""
        if not self._minmax:
            self._collect(self._extend)
        if method == MINMAX:
            return self._minmax
        if not self._histograms:
            self._collect(self._count)
        narrowed = _percentile if method == PERCENTILE else _entropy
        return {name: self._within(name, narrowed(counts)) for name, counts in self._histograms.items()}

    def _collect(self, add: Callable[[str, Any], None]) -> None:
        for path in self._inputs:
            given = arrays.load(path)
            made = sessions.run(self._session, given)
            for name in self._tensors:
                values = given[name] if name in self._given else made[name]
                if values.size:
                    add(name, values)

    def _extend(self, name: str, values: Any) -> None:
        low, high = self._minmax.get(name, (np.float32(0), np.float32(0)))
        self._minmax[name] = (min(low, np.float32(values.min())), max(high, np.float32(values.max())))

    def _count(self, name: str, values: Any) -> None:
        counts, _ = np.histogram(np.abs(values), bins=_BINS, range=(0, self._largest(name)))
        self._histograms[name] = self._histograms.get(name, 0) + counts

    def _largest(self, name: str) -> float:
        return float(np.abs(self._minmax[name]).max()) or 1.0

    def _within(self, name: str, bins: int) -> tuple[Any, Any]:
        """Return the range of the values whose magnitudes are in the first ``bins``."""
        low, high = self._minmax[name]
        limit = np.float32(self._largest(name) * bins / _BINS)
        return max(low, -limit), min(high, limit)


def _with_outputs(model: onnx.ModelProto, tensors: Sequence[str]) -> onnx.ModelProto:
    """Return the model with these tensors as outputs."""
    told = onnx.ModelProto()
    told.CopyFrom(model)
    there = {value.name for value in (*told.graph.output, *told.graph.input)}
    told.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors if name not in there)
    return told


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
