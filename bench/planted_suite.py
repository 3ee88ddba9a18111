"""Wrong and right builds of small networks, each judged as verification judges: ``python -m bench.planted_suite``.

Requires the onnx engine's environment. Wrong builds are networks with a planted fault, or right outputs with one. Right
builds compute the same in another way: other reduction orders, blocked sums, fused multiply-add, Winograd's
convolutions, equivalent formulas. Prints JSON; errors are in multiples of their limits.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from bench.planted_networks import NETWORKS
from tuner.engines.onnx import arrays, sessions
from tuner.engines.onnx.accuracy import comparing, perturbing
from tuner.engines.onnx.arrays import Arrays
from tuner.engines.protocol.messages import Json

_SEEDS = (0, 1, 2)
_SECONDS = 20.0
_SHOWN = 5
_PLAIN = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL

Fault = Callable[[Arrays, Arrays], None]
"""Changes the outputs in place; also receives those on other inputs, as what stale memory holds."""
Change = Callable[[Any], None]
"""Changes a network in place."""


class Network:
    """A network with the reference's results."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.model = NETWORKS[name]()
        path = folder / "prepared.onnx"
        folder.mkdir(parents=True)
        path.write_bytes(self.model.SerializeToString())
        specs = [
            {"name": value.name, "dtype": "int64" if value.type.tensor_type.elem_type == 7 else "float32",
             "shape": [size.dim_value for size in value.type.tensor_type.shape.dim]}
            for value in self.model.graph.input
        ]  # fmt: skip
        paths = arrays.make_files(specs, _SEEDS, str(folder), str(path))["paths"]
        self.inputs = [arrays.load(each) for each in paths]
        session = sessions.open_session(str(path), threads=2)
        self.expected = [sessions.run(session, fed) for fed in self.inputs]
        folders = [str(folder / f"{seed}.runs") for seed in _SEEDS]
        perturbing.run(str(path), paths, folders, threads=2, seconds=_SECONDS)
        self.runs = [perturbing.load(each) for each in folders]

    def computed(self, model: Any) -> list[Arrays]:
        """Run a changed network as another runtime would: without optimizations, on one thread."""
        session = sessions.open_session(model.SerializeToString(), threads=1, level=_PLAIN)
        return [sessions.run(session, fed) for fed in self.inputs]

    def copy(self) -> Any:
        copied = onnx.ModelProto()
        copied.CopyFrom(self.model)
        return copied

    def closest(self, outputs: list[Arrays]) -> float:
        """Return the largest error in multiples of its limit, over all inputs; verification passes outputs up to 1."""
        return max(
            _share(row)
            for wanted, found, runs in zip(self.expected, outputs, self.runs, strict=True)
            for row in comparing.compare(wanted, found, runs=runs)
        )


def _share(row: Json) -> float:
    """Return an output's error in multiples of its limit."""
    if row["fault"] or row["not_finite"] or not row["rtol"]:
        return 0.0 if row["passed"] else math.inf
    scale = row["max_abs"] / row["max_rel"] if row["max_rel"] else 0.0
    element = row["max_abs"] / (row["atol"] + row["rtol"] * scale)
    part = row["rms"] / row["rms_limit"]
    share = float(max(element, part))
    if row["passed"] != (share <= 1):
        raise AssertionError(f"{share} of the limit, but passed is {row['passed']}: {row}")
    return share


def _of(output: str, change: Callable[[Any, Any], Any]) -> Fault:
    """A fault of one output: ``change`` receives it with its stale contents, and changes it or returns another one."""

    def plant(outputs: Arrays, stale: Arrays) -> None:
        outputs[output] = outputs[output].copy()
        changed = change(outputs[output], stale[output])
        outputs[output] = outputs[output] if changed is None else changed

    return plant


def _set(index: Any, value: Callable[[Any, Any], Any]) -> Callable[[Any, Any], None]:
    def change(array: Any, stale: Any) -> None:
        array[index] = value(array, stale)

    return change


def _tile_off_by_one(array: Any, _: Any) -> None:
    array[0, 2, 0:4, 1:5] = array[0, 2, 0:4, 0:4].copy()


def _tail(count: int) -> Callable[[Any, Any], None]:
    return lambda array, _: array.reshape(-1)[-count:].fill(0)


def _swapped(axis: int, one: int, other: int) -> Callable[[Any, Any], Any]:
    def change(array: Any, _: Any) -> Any:
        order = np.arange(array.shape[axis])
        order[[one, other]] = order[[other, one]]
        return np.take(array, order, axis=axis)

    return change


def _stale(index: Any) -> Callable[[Any, Any], None]:
    return _set(index, lambda _, stale: stale[index])


def _tensors(model: Any, operator: str) -> list[Any]:
    """Weights of each of the operators, in order, as tensors of the graph."""
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == operator]
    return [known[name] for node in nodes for name in node.input if name in known]


def _weights(operator: str, place: int, change: Callable[[Any], Any]) -> Change:
    """Change the ``place``-th weight of the operators: ``change`` may work in place or return another one."""

    def apply(model: Any) -> None:
        tensor = _tensors(model, operator)[place]
        array = numpy_helper.to_array(tensor).copy()
        changed = change(array)
        tensor.CopyFrom(numpy_helper.from_array(array if changed is None else changed, tensor.name))

    return apply


def _attribute(operator: str, place: int, **values: Any) -> Change:
    def apply(model: Any) -> None:
        node = [node for node in model.graph.node if node.op_type == operator][place]
        for name, value in values.items():
            for old in [old for old in node.attribute if old.name == name]:
                node.attribute.remove(old)
            node.attribute.append(helper.make_attribute(name, value))

    return apply


def _operator(old: str, new: str, place: int = 0, **values: Any) -> Change:
    def apply(model: Any) -> None:
        [node for node in model.graph.node if node.op_type == old][place].op_type = new
        _attribute(new, 0, **values)(model)

    return apply


def _bypass(operator: str, place: int) -> Change:
    """Return the first operand of an operator as its result."""

    def apply(model: Any) -> None:
        node = [node for node in model.graph.node if node.op_type == operator][place]
        node.op_type = "Identity"
        del node.input[1:], node.attribute[:]

    return apply


def _zero(index: Any) -> Callable[[Any], None]:
    def change(array: Any) -> None:
        array[index] = 0

    return change


def _bfloat(array: Any) -> Any:
    return (array.view(np.uint32) + 0x8000 & 0xFFFF0000).astype(np.uint32).view(np.float32)


def _eight_bits(array: Any) -> Any:
    step = np.abs(array).max() / 127
    return (np.rint(array / step) * step).astype(np.float32)


def _formula(operator: str, make: Callable[[str, str], list[Any]]) -> Change:
    """Replace the first of the operators: ``make`` returns the nodes from its one operand's name to the result's."""

    def apply(model: Any) -> None:
        at, node = next((at, node) for at, node in enumerate(model.graph.node) if node.op_type == operator)
        made = make(node.input[0], node.output[0])
        nodes = [*model.graph.node[:at], *made, *model.graph.node[at + 1 :]]
        kept = [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes]
        del model.graph.node[:]
        model.graph.node.extend(kept)

    return apply


class _Lines:
    """Nodes of a formula, written one after another."""

    def __init__(self, end: str) -> None:
        self.nodes: list[Any] = []
        self._end = end

    def do(self, operator: str, *operands: Any, last: bool = False, **attributes: Any) -> str:
        """Add a node; operands are names or numbers."""
        names = [each if isinstance(each, str) else self._number(each) for each in operands]
        result = self._end if last else f"{self._end}_f{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [result], **attributes))
        return result

    def _number(self, value: float) -> str:
        name = f"{self._end}_c{len(self.nodes)}"
        tensor = numpy_helper.from_array(np.float32(value), name)
        self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name


def _tanh_for_erf(start: str, end: str) -> list[Any]:
    """The approximation that makes GELU of tanh: off by up to 3e-4."""
    line = _Lines(end)
    x = line.do("Mul", start, math.sqrt(2))
    cube = line.do("Mul", line.do("Mul", line.do("Mul", x, x), x), 0.044715)
    line.do("Tanh", line.do("Mul", line.do("Add", x, cube), math.sqrt(2 / math.pi)), last=True)
    return line.nodes


def _rational_tanh(start: str, end: str) -> list[Any]:
    """Padé's x (27 + x²) / (27 + 9 x²)."""
    line = _Lines(end)
    square = line.do("Mul", start, start)
    above = line.do("Mul", start, line.do("Add", square, 27.0))
    line.do("Div", above, line.do("Add", line.do("Mul", square, 9.0), 27.0), last=True)
    return line.nodes


def _series_erf(start: str, end: str) -> list[Any]:
    """Abramowitz and Stegun's 7.1.26, within 1.5e-7."""
    line = _Lines(end)
    size = line.do("Abs", start)
    t = line.do("Reciprocal", line.do("Add", line.do("Mul", size, 0.3275911), 1.0))
    factors = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    total = line.do("Mul", t, factors[0])
    for factor in factors[1:]:
        total = line.do("Mul", line.do("Add", total, factor), t)
    tail = line.do("Mul", total, line.do("Exp", line.do("Neg", line.do("Mul", size, size))))
    line.do("Mul", line.do("Sub", 1.0, tail), line.do("Sign", start), last=True)
    return line.nodes


def _tanh_for_sigmoid(start: str, end: str) -> list[Any]:
    line = _Lines(end)
    half = line.do("Tanh", line.do("Mul", start, 0.5))
    line.do("Add", line.do("Mul", half, 0.5), 0.5, last=True)
    return line.nodes


def _exp_for_sigmoid(start: str, end: str) -> list[Any]:
    line = _Lines(end)
    line.do("Reciprocal", line.do("Add", line.do("Exp", line.do("Neg", start)), 1.0), last=True)
    return line.nodes


def _exp_for_tanh(start: str, end: str) -> list[Any]:
    line = _Lines(end)
    power = line.do("Reciprocal", line.do("Add", line.do("Exp", line.do("Mul", start, 2.0)), 1.0))
    line.do("Sub", 1.0, line.do("Mul", power, 2.0), last=True)
    return line.nodes


def _plain_softmax(start: str, end: str) -> list[Any]:
    """Without subtraction of the largest element."""
    line = _Lines(end)
    powers = line.do("Exp", start)
    axes = numpy_helper.from_array(np.array([-1]), f"{end}_axes")
    line.nodes.append(helper.make_node("Constant", [], [f"{end}_axes"], value=axes))
    line.do("Mul", powers, line.do("Reciprocal", line.do("ReduceSum", powers, f"{end}_axes")), last=True)
    return line.nodes


_LAST = np.s_[..., -1, :]
FAULTS: dict[str, dict[str, Fault]] = {
    "classifier": {
        "an off-by-one tile": _of("map", _tile_off_by_one),
        "a dropped tail": _of("map", _tail(3)),
        "one wrong channel": _of("map", _set(np.s_[:, 3], lambda array, _: array[:, 3] * 1.01)),
        "a scale off by 1e-3": _of("map", lambda array, _: array * np.float32(1.001)),
        "one channel's scale off by 1e-3": _of("map", _set(np.s_[:, 5], lambda a, _: a[:, 5] * np.float32(1.001))),
        "the last row stale": _of("map", _stale(_LAST)),
        "swapped channels": _of("map", _swapped(1, 2, 6)),
        "NaN in one element": _of("map", _set((1, 3, 5, 5), lambda *_: np.nan)),
        "infinity in one element": _of("map", _set((0, 7, 0, 0), lambda *_: np.inf)),
        "one image of the batch stale": _of("map", _stale(1)),
        "an unwritten tile": _of("map", _set(np.s_[0, 1, 4:6, 4:6], lambda *_: 0)),
        "one image for both": _of("map", _set(1, lambda array, _: array[0])),
        "scores of the previous run": _of("scores", lambda _, stale: stale),
    },
    "transformer": {"the last token stale": _of("y", _stale(_LAST))},
    "detector": {
        "one score's scale off by 1e-3": _of("y", _set(np.s_[..., 6], lambda a, _: a[..., 6] * np.float32(1.001))),
        "swapped scores": _of("y", _swapped(2, 5, 7)),
        "corners swapped in one box": _of("y", _set(np.s_[0, 9, :2], lambda array, _: array[0, 9, 1::-1].copy())),
        "the last boxes zero": _of("y", _set(np.s_[0, -8:], lambda *_: 0)),
        "the grid's last row off by one": _of("y", _set(np.s_[0, -8:, 1], lambda array, _: array[0, -8:, 1] - 80)),
    },
    "lines": {
        "the scores' last row stale": _of("scores", _stale(_LAST)),
        "one score kept twice": _of("scores", lambda a, _: np.maximum(a, np.roll(a * (a == a.max()), 1, axis=-1))),
        "offsets off by 1e-3": _of("offsets", lambda array, _: array * np.float32(1.001)),
    },
    "variance": {"one row's mean of another": _of("y", _set(3, lambda array, _: array[3] + 2.0))},
    "difference": {
        "one column stale": _of("y", _stale(np.s_[:, 7])),
        "both rows swapped": _of("y", _swapped(0, 2, 9)),
    },
    "recurrent": {"the last step stale": _of("y", _stale(-1))},
    "top_k": {
        "indices off by one": _of("places", lambda array, _: array + 1),
        "the first two rows swapped": _of("boxes", _swapped(0, 0, 1)),
        "the last box stale": _of("boxes", _stale(-1)),
        "one index repeated": _of("places", _set(7, lambda array, _: array[6])),
    },
    "segmentation": {
        "labels of the next column": _of("labels", lambda array, _: np.roll(array, 1, axis=-1)),
        "a stale tile of labels": _of("labels", _stale(np.s_[..., 16:32, 16:32])),
        "two classes swapped": _of("labels", lambda array, _: np.where(array < 2, 1 - array, array)),
    },
    "suppression": {
        "the last box dropped": _of("boxes", lambda array, _: array[:-1]),
        "one box twice": _of("boxes", _set(1, lambda array, _: array[0])),
    },
}
CHANGES: dict[str, dict[str, Change]] = {
    "classifier": {
        "a dropped bias": _weights("Conv", 1, _zero(np.s_[:])),
        "wrong padding at an edge": _attribute("Conv", 2, pads=[0, 1, 2, 1]),
        "the last channel not summed": _weights("Conv", 4, _zero(np.s_[:, -1])),
        "weights in bf16": _weights("Conv", 2, _bfloat),
        "a dropped residual": _bypass("Add", 0),
        "a leaky ReLU": _operator("Relu", "LeakyRelu", 1, alpha=1e-2),
    },
    "transformer": {
        "an approximated GELU": _formula("Erf", _tanh_for_erf),
        "the last product not summed": _weights("MatMul", 4, _zero(np.s_[-1])),
    },
    "detector": {"an approximated sigmoid": _operator("Sigmoid", "HardSigmoid", alpha=0.2, beta=0.5)},
    "lines": {"another grid of pixels": _attribute("Resize", 0, coordinate_transformation_mode="align_corners")},
    "tokens": {
        "an approximated tanh": _formula("Tanh", _rational_tanh),
        "weights in 8 bits": _weights("MatMul", 1, _eight_bits),
    },
}
TWINS: dict[str, dict[str, Change]] = {
    "transformer": {
        "a series for erf": _formula("Erf", _series_erf),
        "a plain softmax": _formula("Softmax", _plain_softmax),
    },
    "classifier": {"a plain softmax": _formula("Softmax", _plain_softmax)},
    "detector": {
        "a sigmoid of tanh": _formula("Sigmoid", _tanh_for_sigmoid),
        "a sigmoid of exp": _formula("Sigmoid", _exp_for_sigmoid),
    },
    "lines": {"a sigmoid of exp": _formula("Sigmoid", _exp_for_sigmoid)},
    "top_k": {"a sigmoid of exp": _formula("Sigmoid", _exp_for_sigmoid)},
    "suppression": {"a sigmoid of exp": _formula("Sigmoid", _exp_for_sigmoid)},
    "tokens": {"a tanh of exp": _formula("Tanh", _exp_for_tanh)},
}


def wrong() -> Iterator[tuple[str, str, Callable[[Network], list[Arrays]]]]:
    """Yield ``(network, fault, function that returns the outputs)``."""
    for name, faults in FAULTS.items():
        for title, fault in faults.items():
            yield name, title, partial(_planted, fault)
    for name, changes in CHANGES.items():
        for title, change in changes.items():
            yield name, title, partial(_changed, change)
    for name in ("classifier", "transformer", "tokens"):
        yield name, "sums in fp16", partial(_evaluated, _in_half)


def right() -> Iterator[tuple[str, str, Callable[[Network], list[Arrays]]]]:
    """Likewise, of right builds."""
    for name in NETWORKS:
        yield name, "no optimization", lambda network: network.computed(network.model)
        for title, change in TWINS.get(name, {}).items():
            yield name, title, partial(_changed, change)
        for title, own in _SUMS.items():
            yield name, title, partial(_evaluated, own)


def _planted(fault: Fault, network: Network) -> list[Arrays]:
    computed = network.computed(network.model)
    outputs = [dict(each) for each in computed]
    for place, each in enumerate(outputs):
        stale = computed[place - 1]
        fault(each, stale)
    return outputs


def _changed(change: Change, network: Network) -> list[Arrays]:
    model = network.copy()
    change(model)
    del model.graph.value_info[:]
    return network.computed(model)


def _in_order(products: Iterator[tuple[Any, Any]], shape: tuple[int, ...]) -> Any:
    """Add one product after another, in float32."""
    total = np.zeros(shape, np.float32)
    for one, other in products:
        total = total + one * other
    return total


def _fused(products: Iterator[tuple[Any, Any]], shape: tuple[int, ...]) -> Any:
    """Round once for each product and sum, as fused multiply-add does."""
    total = np.zeros(shape, np.float32)
    for one, other in products:
        total = (total.astype(np.float64) + one.astype(np.float64) * other).astype(np.float32)
    return total


def _in_half(products: Iterator[tuple[Any, Any]], shape: tuple[int, ...]) -> Any:
    """Add in float16: wrong."""
    total = np.zeros(shape, np.float16)
    for one, other in products:
        total = total + (one * other).astype(np.float16)
    return total


def _backwards(products: Iterator[tuple[Any, Any]], shape: tuple[int, ...]) -> Any:
    return _in_order(iter(list(products)[::-1]), shape)


def _in_blocks(products: Iterator[tuple[Any, Any]], shape: tuple[int, ...], size: int = 16) -> Any:
    """Add sums of blocks, as tiles of a reduction are."""
    held = list(products)
    blocks = [_in_order(iter(held[start : start + size]), shape) for start in range(0, len(held), size)]
    return np.sum(blocks, axis=0, dtype=np.float32)


_SUMS = {
    "sums in order": _in_order, "sums backwards": _backwards, "sums in blocks": _in_blocks,
    "fused multiply-add": _fused, "Winograd's convolutions": None,
}  # fmt: skip
_TILE = 4
"""Output tile of Winograd's F(4×4, 3×3)."""
_INPUT = np.array([
    [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1],
], np.float32)  # fmt: skip
_KERNEL = np.array([
    [1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6],
    [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1],
], np.float32)  # fmt: skip
_OUTPUT = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], np.float32)


def _evaluated(own: Any, network: Network) -> list[Arrays]:
    """Evaluate operator by operator, with sums of our own; None stands for Winograd's convolutions."""
    if own is None and not any(_is_winograd(node) for node in network.model.graph.node):
        return network.computed(network.model)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in network.model.graph.initializer}
    names = [output.name for output in network.model.graph.output]
    found = []
    for fed in network.inputs:
        values = {"": None, **weights, **fed}
        for node in network.model.graph.node:
            given = [values[name] for name in node.input]
            if node.op_type in _OWN:
                results = [_OWN[node.op_type](own, node, *given).astype(np.float32)]
            else:
                results = _single(node, {name: values[name] for name in node.input if name})
            values.update(zip(node.output, results, strict=True))
        found.append({name: values[name] for name in names})
    return found


def _single(node: Any, fed: Arrays) -> list[Any]:
    """Run one operator."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in fed.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(helper.make_graph([node], "one", inputs, outputs), opset_imports=imports, ir_version=8)
    session = sessions.open_session(model.SerializeToString(), threads=1, level=_PLAIN)
    return list(session.run(None, fed))


def _is_winograd(node: Any) -> bool:
    kernel = [list(each.ints) for each in node.attribute if each.name == "kernel_shape"]
    strides = [list(each.ints) for each in node.attribute if each.name == "strides"]
    return node.op_type == "Conv" and kernel == [[3, 3]] and strides == [[1, 1]]


def _conv(own: Any, node: Any, x: Any, weights: Any, bias: Any) -> Any:
    given = {each.name: list(each.ints) for each in node.attribute}
    (kernel, pads, strides), shift = (given[name] for name in ("kernel_shape", "pads", "strides")), bias[:, None, None]
    padded = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    if own is None and _is_winograd(node):
        return _winograd(padded, weights) + shift
    high, wide = ((padded.shape[2 + axis] - kernel[axis]) // strides[axis] + 1 for axis in (0, 1))
    products = (
        (
            padded[:, None, channel, row :: strides[0], column :: strides[1]][..., :high, :wide],
            weights[None, :, channel, row, column, None, None],
        )
        for channel in range(weights.shape[1])
        for row in range(kernel[0])
        for column in range(kernel[1])
    )
    return (own or _in_order)(products, (len(x), len(weights), high, wide)) + shift


def _matmul(own: Any, _: Any, a: Any, b: Any) -> Any:
    products = ((a[..., :, k, None], b[..., k, None, :]) for k in range(a.shape[-1]))
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    return (own or _in_order)(products, shape)


def _gemm(own: Any, node: Any, a: Any, b: Any, c: Any = 0.0) -> Any:
    return _matmul(own, node, a, b) + c


def _mean(own: Any, node: Any, x: Any) -> Any:
    given = {each.name: list(each.ints) or each.i for each in node.attribute}
    [axis] = given["axes"]
    moved = np.moveaxis(x, axis, 0)
    total = (own or _in_order)(((row, np.float32(1)) for row in moved), moved.shape[1:]) / np.float32(len(moved))
    return np.expand_dims(total, axis) if given.get("keepdims", 1) else total


_OWN = {"Conv": _conv, "MatMul": _matmul, "Gemm": _gemm, "ReduceMean": _mean}


def _winograd(padded: Any, weights: Any) -> Any:
    """Return the convolution of a padded input by tiles, Lavin and Gray (CVPR 2016), in float32."""
    count, _, high, wide = padded.shape
    rows, columns = high - 2, wide - 2
    tall, broad = -(-rows // _TILE), -(-columns // _TILE)
    padded = np.pad(padded, [(0, 0), (0, 0), (0, tall * _TILE + 2 - high), (0, broad * _TILE + 2 - wide)])
    kernels = np.einsum("ij,ocjk,lk->ocil", _KERNEL, weights, _KERNEL, dtype=np.float32)
    found = np.zeros((count, weights.shape[0], tall * _TILE, broad * _TILE), np.float32)
    for row in range(tall):
        for column in range(broad):
            top, left = row * _TILE, column * _TILE
            tile = np.einsum(
                "ij,ncjk,lk->ncil", _INPUT, padded[:, :, top : top + 6, left : left + 6], _INPUT, dtype=np.float32
            )
            product = np.einsum("ncij,ocij->noij", tile, kernels, dtype=np.float32)
            found[:, :, top : top + _TILE, left : left + _TILE] = np.einsum(
                "ij,nojk,lk->noil", _OUTPUT, product, _OUTPUT, dtype=np.float32
            )
    return found[:, :, :rows, :columns]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="tunesmith-planted-") as folder:
        networks = {name: Network(name, Path(folder) / name) for name in NETWORKS}
        faults = {f"{name}: {title}": networks[name].closest(make(networks[name])) for name, title, make in wrong()}
        twins = {f"{name}: {title}": networks[name].closest(make(networks[name])) for name, title, make in right()}
    report = {
        "wrong": len(faults),
        "caught": sum(share > 1 for share in faults.values()),
        "right": len(twins),
        "accepted": sum(share <= 1 for share in twins.values()),
        "not_caught": [title for title, share in faults.items() if share <= 1],
        "not_accepted": [title for title, share in twins.items() if share > 1],
        "smallest_faults": dict(sorted(faults.items(), key=lambda item: item[1])[:_SHOWN]),
        "largest_errors": dict(sorted(twins.items(), key=lambda item: -item[1])[:_SHOWN]),
    }
    json.dump(report, sys.stdout, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
