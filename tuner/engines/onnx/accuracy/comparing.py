"""Comparison of outputs with the reference's, and detection of classifier outputs.

A classifier returns one number for each class; the largest is the answer. The limits of f32 follow from ``rounding``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tuner.engines.onnx import models
from tuner.engines.onnx.accuracy import perturbing, rounding, selections
from tuner.engines.onnx.accuracy.perturbing import Run
from tuner.engines.onnx.arrays import Arrays
from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import importing

TOLERANCES = {
    "float64": (1e-9, 1e-7),
    "float32": (1e-5, 5e-4),
    "float16": (1e-3, 1e-2),
}
"""Absolute tolerance, and tolerance relative to the output's largest magnitude; integers and booleans must be equal.

For float32 this is the least limit; ``rounding`` may allow more. It is about 4000 units in the last place: correct
compilations of deep networks were seen within 1e-5, wrong ones off by 1e-1 and more.
"""
NARROW_TOLERANCES = {"fp16": (1e-3, 2e-2), "bf16": (1e-3, 1e-1), "int8": (1e-3, 1e-1)}
"""Tolerances for floating-point outputs of networks that compute in a narrower type, in the same form.

An fp16 number has 11 significant bits, so a rounding error is up to 5e-4 of it; over about a hundred layers errors add
up like a random walk, to about 5e-3 of the largest output. bf16 has 8 bits, so its error is up to 4e-3; that of int8 is
as much of the largest value in the whole tensor. Wrong results were seen off by 1e-1 and more; for these two the
position of the largest element says more.
"""
CLASSIFIER_TOLERANCE = 2e-1
"""Relative tolerance for classifier outputs in bf16 and int8: softmax amplifies small differences; the largest element
decides."""
_COARSE = ("bf16", "int8")
_UNEXPLAINED = "rows that no run of the reference selects, orders or leaves out like this"
LARGEST = 1e308
"""Replaces an infinite or undefined error, which JSON cannot represent; ``fault`` then says why."""


def compare(
    expected: Arrays,
    actual: Arrays,
    *,
    precision: str = "f32",
    max_rel: float | None = None,
    classifiers: Collection[str] = (),
    runs: Sequence[Run] = (),
    quantized: bool = False,
) -> list[Json]:
    """Return one entry per expected output; a missing output or one of another shape fails with the largest error.

    ``fault`` says why there is no error in numbers, such as ``wrong shape: 1×4 instead of 1×3``, and is None otherwise.
    ``precision`` is that of ``actual`` and selects the tolerances; ``max_rel`` overrides the relative one of
    floating-point outputs. For the outputs named in ``classifiers``, ``rows`` counts the vectors along the last axis
    longer than one, and ``agreed`` those whose largest element is at the expected position; for others both are 0.
    ``parts`` counts these vectors or, of other outputs, the whole as one, and ``within`` those without an element
    beyond the limit. ``elements`` counts the expected elements and ``finite`` those that are finite: if there are none,
    agreement proves nothing.

    ``runs`` are of the reference with perturbed operands; in f32 they decide the limits (see ``rounding``), also by
    whether the model ``is_quantized``. ``rtol`` is then the one allowed where the error is largest or, if elements
    exceed their limits, where the excess is largest. ``rounding`` is the reference's own rounding error, relative as
    ``max_rel`` is, ``ties`` counts the elements that agree only with one of ``runs`` and the rows that have moved (see
    ``selections``), and ``rms``, ``rms_limit`` and ``part`` say which part of the output comes closest to its limit.
    """
    return [
        _compare(
            name,
            array,
            actual.get(name),
            _Rules(
                *_tolerances(array, precision, max_rel, name in classifiers),
                classifies=name in classifiers,
                quantized=quantized,
            ),
            [(run.ulps, run.outputs[name]) for run in runs if name in run.outputs] if precision == "f32" else [],
        )
        for name, array in expected.items()
    ]


@dataclass(frozen=True)
class _Rules:
    """How one output is judged."""

    atol: float
    rtol: float
    classifies: bool
    quantized: bool


def _tolerances(expected: Any, precision: str, max_rel: float | None, classifies: bool) -> tuple[float, float]:
    dtype = expected.dtype.name
    if dtype not in TOLERANCES:
        return 0.0, 0.0
    atol, rtol = NARROW_TOLERANCES.get(precision, TOLERANCES[dtype])
    if classifies and precision in _COARSE:
        rtol = CLASSIFIER_TOLERANCE
    return atol, rtol if max_rel is None else max_rel


def _compare(
    name: str,
    expected: Any,
    actual: Any,
    rules: _Rules,
    runs: Sequence[tuple[int, Any]],
) -> Json:
    selection = selections.find(expected, runs)
    if selection is None:
        return _placed(name, *_of_shape(expected, actual, runs), actual, rules)
    aligned = selection.align(actual)
    if aligned is None:
        wrong = _placed(name, expected, [], actual, rules)
        return {
            **wrong,
            "max_abs": LARGEST,
            "max_rel": LARGEST,
            "passed": False,
            "fault": wrong["fault"] or _UNEXPLAINED,
        }
    rows, others, moved = aligned
    placed = _placed(name, rows, others, actual, rules)
    return {**placed, "ties": placed.get("ties", 0) + moved}


def _placed(
    name: str,
    expected: Any,
    runs: Sequence[tuple[int, Any]],
    actual: Any,
    rules: _Rules,
) -> Json:
    """Compare place by place with an output and runs of its shape."""
    atol, rtol = rules.atol, rules.rtol
    max_abs, scale = _errors(expected, actual)
    passed = max_abs <= atol + rtol * scale
    # Relative to an output of zeros, any rounding error would be infinite.
    least = max(scale, atol)
    judged: Json = {}
    if max_abs < LARGEST and (found := _judge(expected, actual, runs, atol + rtol * scale, rules.quantized)):
        max_abs, passed = found.error, found.passed
        rtol = max(rtol, (found.limit - atol) / least) if least > 0 else rtol
        judged = {
            "rounding": found.rounding / least if least > 0 else 0.0,
            "ties": found.ties,
            "rms": found.rms,
            "rms_limit": found.rms_limit,
            "part": found.part,
        }
    max_rel = max_abs / least if least > 0 else (0.0 if max_abs == 0 else LARGEST)
    not_finite = _not_finite(expected, actual)
    rows, agreed = _agreement(expected, actual) if rules.classifies else (0, 0)
    parts, within = _within(expected, actual, rows or 1, atol + rtol * scale)
    return {
        "output": name,
        "dtype": expected.dtype.name,
        "max_abs": max_abs,
        "fault": _fault(expected, actual) if max_abs >= LARGEST else None,
        "max_rel": min(max_rel, LARGEST),
        "atol": atol,
        "rtol": rtol,
        "passed": bool(passed) and not not_finite,
        "not_finite": not_finite,
        "elements": int(expected.size),
        "finite": int(np.count_nonzero(np.isfinite(_wide(expected)))),
        "rows": rows,
        "agreed": agreed,
        "parts": parts,
        "within": within,
        **judged,
    }


def _of_shape(expected: Any, actual: Any, runs: Sequence[tuple[int, Any]]) -> tuple[Any, list[tuple[int, Any]]]:
    """Return the output to compare with, and the other runs of its shape.

    A selection may have another length if it has that length in one of the runs.
    """
    same = [run for run in runs if actual is not None and run[1].shape == actual.shape]
    if actual is None or actual.shape == expected.shape or not same:
        return expected, [run for run in runs if run[1].shape == expected.shape]
    return same[0][1], same[1:]


def _judge(
    expected: Any, actual: Any, runs: Sequence[tuple[int, Any]], floor: float, quantized: bool
) -> rounding.Judgment | None:
    """Return None if the runs decide nothing: there are none, or the output has another type than float32."""
    if not runs or not expected.size:
        return None
    if expected.dtype.name == "float32":
        return rounding.judge(expected, actual, runs, floor=floor, quantized=quantized)
    return rounding.judge_exact(expected, actual, runs) if expected.dtype.kind in "iub" else None


def _fits(expected: Any, actual: Any) -> bool:
    return actual is not None and actual.shape == expected.shape and actual.dtype == expected.dtype


def _errors(expected: Any, actual: Any) -> tuple[float, float]:
    """Return the largest absolute error and the largest finite magnitude in ``expected``."""
    if not _fits(expected, actual):
        return LARGEST, 0.0
    if expected.size == 0:
        return 0.0, 0.0
    wide_expected, wide_actual = _wide(expected), _wide(actual)
    finite = np.isfinite(wide_expected)
    scale = float(np.abs(wide_expected[finite]).max(initial=0))
    same_special = np.array_equal(wide_expected[~finite], wide_actual[~finite], equal_nan=True)
    if not same_special or not np.isfinite(wide_actual[finite]).all():
        return LARGEST, min(scale, LARGEST)
    errors = np.abs(wide_actual[finite] - wide_expected[finite])
    return min(float(errors.max(initial=0)), LARGEST), min(scale, LARGEST)


def _fault(expected: Any, actual: Any) -> str:
    """Return why the error of an output cannot be computed."""
    if actual is None:
        return "no such output"
    if actual.shape != expected.shape:
        return f"wrong shape: {_shape(actual)} instead of {_shape(expected)}"
    if actual.dtype != expected.dtype:
        return f"wrong type: {actual.dtype.name} instead of {expected.dtype.name}"
    wide_expected, wide_actual = _wide(expected), _wide(actual)
    found = wide_actual[np.isfinite(wide_expected)]
    if np.isfinite(found).all():
        return "the error is too large for a number" if np.isfinite(wide_expected).all() else "NaN or infinity missing"
    return "NaN" if np.isnan(found).any() else "infinite"


def _shape(array: Any) -> str:
    return "×".join(map(str, array.shape)) or "scalar"


def _not_finite(expected: Any, actual: Any) -> int:
    """Return the number of elements that are NaN or infinite where the expected ones are finite."""
    if not _fits(expected, actual) or expected.dtype.kind not in "fc":
        return 0
    return int(np.count_nonzero(np.isfinite(expected) & ~np.isfinite(actual)))


def _agreement(expected: Any, actual: Any) -> tuple[int, int]:
    """Return the number of rows along the last axis and of those that agree; ties match any position."""
    shape = list(expected.shape)
    while len(shape) > 2 and shape[-1] == 1:
        # Trailing dimensions of one, left by a convolution over an image.
        shape.pop()
    if not shape or expected.size == 0 or shape[-1] < 2:
        return 0, 0
    rows = expected.reshape(-1, shape[-1])
    if not _fits(expected, actual):
        return len(rows), 0
    chosen = actual.reshape(rows.shape).argmax(axis=1)
    return len(rows), int(np.count_nonzero(rows[np.arange(len(rows)), chosen] == rows.max(axis=1)))


def _within(expected: Any, actual: Any, parts: int, limit: float) -> tuple[int, int]:
    """Return ``parts``, equal ones of an output, and the number of those in which no element is off by more."""
    if not _fits(expected, actual):
        return parts, 0
    if not expected.size:
        return parts, parts
    errors = np.abs(_wide(actual) - _wide(expected)).reshape(parts, -1)
    # What is infinite or NaN on both sides differs by NaN.
    return parts, int(np.count_nonzero(~(errors > limit).any(axis=1)))


def _wide(array: Any) -> Any:
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    # Extended floats avoid the wrap-around of int64 and uint64 differences.
    return array.astype(np.float64) if array.dtype.kind in "fb" else array.astype(np.longdouble)


_RANKS = (2, 3)
"""Ranks of classifier outputs: ``[N, C]``, and ``[N, T, C]`` for sequences."""
_PROBABILITIES = ("Softmax", "LogSoftmax")
_LOGITS = ("Gemm", "MatMul")
_PASSING = ("Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Dropout")
_POOLING = ("GlobalAveragePool", "AveragePool", "ReduceMean")
"""Last operators of fully convolutional classifiers."""
_MOST_STEPS = 8


def classifier_outputs(path: str | None) -> frozenset[str]:
    """Return the names of a model's outputs that end in a softmax or in the logits for one.

    Empty if unknown: without a file, or for an IRModule. Raises EngineFailure ``invalid_model``.
    """
    if not path or Path(path).suffix != ".onnx":
        return frozenset()
    return _outputs(path)


def is_quantized(path: str | None) -> bool:
    """Return whether a model rounds values in between to integers and selects nothing.

    Raises EngineFailure ``invalid_model``.
    """
    return bool(path) and Path(str(path)).suffix == ".onnx" and _is_quantized(path)


_is_quantized = importing.by_file(lambda path: perturbing.is_quantized(models.read(path).graph), kept=4)
_outputs = importing.by_file(lambda path: of_graph(models.read(path).graph), kept=4)


def of_graph(graph: onnx.GraphProto) -> frozenset[str]:
    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name for tensor in graph.initializer}
    return frozenset(
        value.name for value in graph.output if _has_classes(value) and _classifies(value.name, makers, constants)
    )


def _has_classes(value: Any) -> bool:
    shape = models.spec(value)["shape"]
    if shape[2:] == [1, 1]:
        # A single pixel remains of the image.
        shape = shape[:2]
    return len(shape) in _RANKS and isinstance(shape[-1], int) and shape[-1] >= 2


def _classifies(name: str, makers: dict[str, Any], constants: set[str]) -> bool:
    for _ in range(_MOST_STEPS):
        node = makers.get(name)
        if node is None:
            return False
        if node.op_type in _PROBABILITIES or node.op_type in _LOGITS or node.op_type in _POOLING:
            return True
        if node.op_type == "Add":
            # Adds a bias.
            moving = [given for given in node.input if given not in constants]
            if len(moving) != 1:
                return False
            name = moving[0]
        elif node.op_type in _PASSING:
            name = node.input[0]
        else:
            return False
    return False
