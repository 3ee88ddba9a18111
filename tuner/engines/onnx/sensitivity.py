"""Which layers of a model are quantized, by what the quantized model computes on the calibration inputs.

All of them, if the outputs stay well within the accuracy gate; the ranges are those of the first method that achieves
that, or of the best one. Else the layers are ordered by the error of a model in which each is quantized alone, and the
fewest of the most sensitive ones stay in float32 that suffice. Rows that judge a build take no part in that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.engines.onnx import calibrating, comparing
from tuner.engines.onnx.arrays import Arrays
from tuner.engines.onnx.calibrating import Calibration, Ranges
from tuner.engines.runtime import progress

_ENOUGH, _ENOUGH_OF_KEPT = 0.7, 0.5
"""Shares of the gate's limits that are well within them, as other rows judge: of a model that is quantized as a whole,
and of one whose layers were chosen by these inputs, for which it agrees better than for others."""
_MOST_KEPT = 0.5
"""Share of the layers that may stay in float32; with more of them, little is left to gain."""
_MOST_RUNS = 8
"""Calibration inputs that order the layers."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Limits of the request, or the precision's."""

    max_rel: float | None
    top1: float | None
    classifiers: Collection[str]
    """Names of the outputs that ``top1`` is about."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How a quantized model's outputs agree with the model's."""

    share: float
    """The largest error as a share of the gate's limit; above 1 also if too few rows agree."""
    rms: float
    """Root of the mean squared error, relative to the output's; of the output where it is largest."""

    @classmethod
    def of(cls, expected: Sequence[Arrays], actual: Sequence[Arrays], gate: Gate) -> Agreement:
        pairs = list(zip(expected, actual, strict=True))
        told = [
            each
            for pair in pairs
            for each in comparing.compare(
                *pair, precision="int8", max_rel=gate.max_rel, classifiers=gate.classifiers
            )
        ]  # fmt: skip
        share = max((each["max_rel"] / each["rtol"] if each["rtol"] else _exact(each) for each in told), default=0.0)
        rows, agreed = (sum(each[name] for each in told) for name in ("rows", "agreed"))
        if gate.top1 is not None and rows and agreed / rows < gate.top1:
            share = max(share, 1 + gate.top1 - agreed / rows)
        return cls(share=share, rms=max((_rms(pairs, name) for name in expected[0]), default=0.0))


def _exact(compared: Mapping[str, Any]) -> float:
    """Of an output of integers."""
    return 0.0 if compared["passed"] else comparing.LARGEST


def _rms(pairs: Sequence[tuple[Arrays, Arrays]], name: str) -> float:
    errors = scale = 0.0
    for expected, actual in pairs:
        if expected[name].dtype.kind != "f" or expected[name].shape != actual[name].shape:
            continue
        wanted = np.nan_to_num(expected[name].astype(np.float64))
        errors += float(np.square(np.nan_to_num(actual[name].astype(np.float64)) - wanted).sum())
        scale += float(np.square(wanted).sum())
    return float(np.sqrt(errors / scale)) if scale else 0.0


@dataclass(frozen=True, kw_only=True)
class Choice:
    method: str
    """One of ``calibrating.METHODS``."""
    ranges: Ranges
    kept: tuple[str, ...]
    """Layers in float32, the most sensitive first."""
    agreement: Agreement

    @property
    def is_enough(self) -> bool:
        return self.agreement.share <= (_ENOUGH_OF_KEPT if self.kept else _ENOUGH)


Try = Callable[[Collection[str], Ranges, int | None], Agreement]
"""``(layers, ranges, most)``: quantize these layers, and compare on at most so many calibration inputs."""


def choose(layers: Sequence[str], calibration: Calibration, attempt: Try, *, seconds: float) -> Choice:
    """Choose the method and the layers; layers that take longer than ``seconds`` to order count as bearing it well.

    Raises EngineFailure.
    """
    deadline = time.monotonic() + seconds
    found: list[Choice] = []
    for method in calibrating.METHODS:
        ranges = calibration.ranges(method)
        found.append(Choice(method=method, ranges=ranges, kept=(), agreement=attempt(layers, ranges, None)))
        if found[-1].is_enough:
            return found[-1]
        if time.monotonic() > deadline:
            break
    found.sort(key=_share)
    order = _ordered(layers, found[0].ranges, attempt, deadline)
    kept = [_keeping(order, int(len(order) * _MOST_KEPT), choice, attempt) for choice in found]
    enough = next((choice for choice in kept if choice.is_enough), None)
    return _fewest(order, enough, attempt) if enough else min([*found, *kept], key=_share)


def _share(choice: Choice) -> float:
    return choice.agreement.share


def _ordered(layers: Sequence[str], ranges: Ranges, attempt: Try, deadline: float) -> list[str]:
    """Return the layers, the most sensitive first."""
    errors = dict.fromkeys(layers, 0.0)
    progress.begin("quantize", len(layers))
    for layer in layers:
        if time.monotonic() > deadline:
            break
        errors[layer] = attempt([layer], ranges, _MOST_RUNS).rms
        progress.advance()
    return sorted(layers, key=lambda layer: -errors[layer])


def _keeping(order: Sequence[str], count: int, choice: Choice, attempt: Try) -> Choice:
    """Return the choice with the first ``count`` layers in float32."""
    agreement = attempt(order[count:], choice.ranges, None)
    return replace(choice, kept=tuple(order[:count]), agreement=agreement)


def _fewest(order: Sequence[str], enough: Choice, attempt: Try) -> Choice:
    """Return a choice that keeps fewer layers, by bisection, as errors seldom grow with their number."""
    too_few = 0
    while len(enough.kept) - too_few > 1:
        found = _keeping(order, (too_few + len(enough.kept)) // 2, enough, attempt)
        if found.is_enough:
            enough = found
        else:
            too_few = len(found.kept)
    return enough
