"""Which layers of a model a narrower precision computes, by the outputs on the calibration inputs.

All of them, if the outputs stay well within the accuracy gate; for int8, with the first ranges that achieve that. Else
the layers are ordered by the squared error of a model in which each is narrow alone, divided by the multiplications
that it saves, and the fewest of the first ones stay in float32 that suffice: errors of layers add up like those of
independent numbers. Rows that judge a build take no part in that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tuner.engines.onnx import arrays, sessions
from tuner.engines.onnx.accuracy import comparing
from tuner.engines.onnx.arrays import Arrays
from tuner.engines.onnx.precisions.calibrating import Ranges
from tuner.engines.runtime import progress

_ENOUGH, _ENOUGH_OF_KEPT = 0.7, 0.5
"""Shares of the gate's limits that are well within them, as other rows judge: of a model that is narrow as a whole, and
of one whose layers were chosen by these inputs, for which it agrees better than for others."""
_MOST_KEPT = 0.75
"""Share of the multiplications that may stay in float32; with more of them, little is left to gain."""
_MOST_RUNS = 8
"""Calibration inputs that order the layers."""
NO_RANGES = "none"
"""Method of a precision that needs no ranges."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Limits of the request, or the precision's."""

    max_rel: float | None
    top1: float | None
    classifiers: Collection[str]
    """Names of the outputs that ``top1`` is about."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How a narrow model's outputs agree with the model's."""

    share: float
    """The largest error, or the rows that do not agree, as a share of the gate's limit."""
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
        if gate.top1 is not None and agreed < rows:
            missed, allowed = 1 - agreed / rows, 1 - gate.top1
            share = max(share, missed / allowed if allowed > 0 else comparing.LARGEST)
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


class Attempts:
    """Narrows layers of the model in a file, and compares the result, a file beside it, with the model."""

    def __init__(self, source: Path, inputs: Sequence[str], gate: Gate, write: Write, threads: int) -> None:
        self._source, self._target = source, source.with_name("attempt.onnx")
        self._inputs, self._gate, self._write, self._threads = inputs, gate, write, threads

    def __call__(self, layers: Collection[str], ranges: Ranges, most: int | None) -> Agreement:
        self._write(layers, ranges, self._target)
        every = len(self._inputs)
        count = every if most is None else min(most, every)
        # Spread evenly: the rows of a file are often sorted by class.
        places = [number * every // count for number in range(count)]
        actual = self._run(self._target, [self._inputs[place] for place in places])
        return Agreement.of([self._expected[place] for place in places], actual, self._gate)

    @cached_property
    def _expected(self) -> list[Arrays]:
        return self._run(self._source, self._inputs)

    def _run(self, path: Path, inputs: Sequence[str]) -> list[Arrays]:
        # Not in integers of ONNX Runtime's kernels, whose sums saturate on some CPUs.
        session = sessions.open_session(str(path), threads=self._threads, level=sessions.NONE)
        return [sessions.run(session, arrays.load(each)) for each in inputs]


@dataclass(frozen=True, kw_only=True)
class Choice:
    method: str
    """One of ``calibrating.METHODS``, or ``NO_RANGES``."""
    ranges: Ranges
    kept: tuple[str, ...]
    """Layers in float32, the first to be kept first."""
    agreement: Agreement

    @property
    def is_enough(self) -> bool:
        return self.agreement.share <= (_ENOUGH_OF_KEPT if self.kept else _ENOUGH)


Write = Callable[[Collection[str], Ranges, Path], None]
"""``(layers, ranges, path)``: write the model with these layers narrow."""
Try = Callable[[Collection[str], Ranges, int | None], Agreement]
"""``(layers, ranges, most)``: narrow these layers, and compare on at most so many calibration inputs."""


def gate_of(model: onnx.ModelProto, max_rel: float | None, top1: float | None) -> Gate:
    return Gate(max_rel=max_rel, top1=top1, classifiers=comparing.of_graph(model.graph))


def choose(
    costs: Mapping[str, float], methods: Mapping[str, Callable[[], Ranges]], attempt: Try, *, seconds: float
) -> Choice:
    """Choose the method and the layers, of those that ``costs`` has the multiplications of.

    The first of the methods that suffices counts, not the best: what cuts off the outliers of these inputs may cut off
    more of others'. Methods are tried, and each layer alone, while ``seconds`` last. Raises EngineFailure.
    """
    deadline = time.monotonic() + seconds
    found: list[Choice] = []
    for method, ranges_of in methods.items():
        ranges = ranges_of()
        found.append(Choice(method=method, ranges=ranges, kept=(), agreement=attempt(list(costs), ranges, None)))
        if found[-1].is_enough:
            return found[-1]
        if time.monotonic() > deadline:
            break
    found.sort(key=_share)
    candidates = _candidates(costs, _errors(list(costs), found[0].ranges, attempt, deadline))
    for choice in list(found):
        found.append(_keeping(costs, candidates, choice, attempt))
        if found[-1].is_enough:
            return _fewest(costs, candidates, found[-1], attempt)
    return min(found, key=_share)


def _share(choice: Choice) -> float:
    return choice.agreement.share


def _errors(layers: Sequence[str], ranges: Ranges, attempt: Try, deadline: float) -> dict[str, float]:
    """Return the error of the model in which each layer is narrow alone, 0 of those that there was no time for."""
    errors = dict.fromkeys(layers, 0.0)
    progress.begin("try", len(layers))
    for layer in layers:
        if time.monotonic() > deadline:
            break
        errors[layer] = attempt([layer], ranges, _MOST_RUNS).rms
        progress.advance()
    return errors


def _candidates(costs: Mapping[str, float], errors: Mapping[str, float]) -> list[str]:
    """Return the layers that may stay in float32, those first that lose most for what they cost."""
    room = _MOST_KEPT * sum(costs.values())
    candidates = []
    for layer in sorted(costs, key=lambda each: -(errors[each] ** 2) / costs[each]):
        if costs[layer] <= room:
            room -= costs[layer]
            candidates.append(layer)
    return candidates


def _keeping(costs: Mapping[str, float], kept: Sequence[str], choice: Choice, attempt: Try) -> Choice:
    """Return the choice with these layers in float32."""
    agreement = attempt([layer for layer in costs if layer not in kept], choice.ranges, None)
    return replace(choice, kept=tuple(kept), agreement=agreement)


def _fewest(costs: Mapping[str, float], candidates: Sequence[str], enough: Choice, attempt: Try) -> Choice:
    """Return a choice that keeps fewer layers, by bisection; not always the fewest, as errors may grow with more."""
    too_few = 0
    while len(enough.kept) - too_few > 1:
        found = _keeping(costs, candidates[: (too_few + len(enough.kept)) // 2], enough, attempt)
        if found.is_enough:
            enough = found
        else:
            too_few = len(found.kept)
    return enough
