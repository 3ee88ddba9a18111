"""Replacement of LSTM, GRU and RNN layers by matrix products and elementwise operators, step by step.

The products with the inputs of all steps are one matrix product; only those with the state remain in the steps. Relax
has no recurrent operators, and Relay would multiply the inputs of each step separately.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import Declined, Emitter, Replacements, replace
from tuner.engines.onnx.rewriting.plain.quantized import CONTRIB, Quantized

_MOST_STEPS = 512
"""Maximum steps, in all directions, of one layer: each becomes about ten nodes."""
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_METHODS = dict.fromkeys((*(("", operator) for operator in _GATES), (CONTRIB, "DynamicQuantizeLSTM")), "_replace")
OPERATORS = frozenset(operator for _, operator in _METHODS)
_ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_KNOWN = ("Sigmoid", "Tanh", "Relu")

Multiply = Callable[[str, str], str]
"""Multiplies a value, named first, by weights and adds another, named second if there is one."""


@dataclass(frozen=True, kw_only=True)
class _Layer:
    node: onnx.NodeProto
    operator: str
    steps: int
    batch: int
    inputs: int
    hidden: int
    activations: tuple[str, ...]

    @property
    def directions(self) -> tuple[bool, ...]:
        """Whether each direction runs backwards."""
        named = graphs.attribute(self.node, "direction", b"forward")
        return {b"forward": (False,), b"reverse": (True,), b"bidirectional": (False, True)}[named]

    def given(self, place: int) -> str:
        return self.node.input[place] if place < len(self.node.input) else ""


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """One direction of a layer."""

    layer: _Layer
    by_input: Multiply
    """By the weights of all gates."""
    by_state: Multiply
    """By the weights of all gates; in a GRU whose reset comes first, by those of the first two."""
    by_reset: Multiply | None
    """By the weights of the last gate, in a GRU whose reset comes first."""
    input_bias: str
    state_bias: str
    """Added to the products with the inputs, and in a GRU to those with the state; may be empty."""
    reset_bias: str
    activations: tuple[str, ...]


class _Unrolling(Replacements):
    methods = _METHODS

    def __init__(self, emitter: Emitter) -> None:
        super().__init__(emitter)
        self._quantized = Quantized(emitter)

    def _replace(self, node: onnx.NodeProto) -> None:
        layer = self._layer(node)
        made = [
            self._direction(self._cell(layer, direction), direction, backwards)
            for direction, backwards in enumerate(layer.directions)
        ]
        for place, (output, axis) in enumerate(zip(node.output, (1, 0, 0), strict=False)):
            if output:
                self._e.emit("Concat", [each[place] for each in made], output, axis=axis)

    def _layer(self, node: onnx.NodeProto) -> _Layer:
        """Return the layer's sizes. Raises Declined for one that cannot be unrolled."""
        shape, hidden = self._e.shapes.get(node.input[0]), graphs.attribute(node, "hidden_size", 0)
        unusual = any(graphs.attribute(node, name, 0) for name in ("clip", "layout", "input_forget"))
        if shape is None or not hidden or unusual:
            raise Declined
        operator = node.op_type.removeprefix("DynamicQuantize")
        given = [name.decode().capitalize() for name in graphs.attribute(node, "activations", [])]
        usual = _ACTIVATIONS[operator]
        layer = _Layer(
            node=node, operator=operator, steps=shape[0], batch=shape[1], inputs=shape[2], hidden=hidden,
            activations=tuple(given) or usual * 2,
        )  # fmt: skip
        lengths, peepholes = layer.given(4), layer.given(7)
        if lengths:
            known = self._e.value(lengths)
            if known is None or (known != layer.steps).any():
                raise Declined
        if peepholes:
            known = self._e.value(peepholes)
            if known is None or known.any():
                raise Declined
        fits = 0 < layer.steps * len(layer.directions) <= _MOST_STEPS
        if not fits or any(name not in _KNOWN for name in layer.activations):
            raise Declined
        return layer

    def _cell(self, layer: _Layer, direction: int) -> _Cell:
        weights, recurrent = self._e.value(layer.given(1)), self._e.value(layer.given(2))
        bias = self._e.value(layer.given(3)) if layer.given(3) else None
        if weights is None or recurrent is None or (layer.given(3) and bias is None):
            raise Declined
        width, border = _GATES[layer.operator] * layer.hidden, 2 * layer.hidden
        biases = np.zeros((2, width), np.float32) if bias is None else bias[direction].reshape(2, width)
        count = len(_ACTIVATIONS[layer.operator])
        activations = layer.activations[direction * count : (direction + 1) * count]
        if layer.operator != "GRU":
            by_input, by_state = self._products(layer, direction, weights, recurrent)
            added = self._e.constant(biases.sum(0))
            return _Cell(
                layer=layer, by_input=by_input, by_state=by_state, by_reset=None,
                input_bias=added, state_bias="", reset_bias="", activations=activations,
            )  # fmt: skip
        resets_last = graphs.attribute(layer.node, "linear_before_reset", 0)
        first = width if resets_last else border
        return _Cell(
            layer=layer,
            by_input=self._product(weights[direction]),
            by_state=self._product(recurrent[direction][:first]),
            by_reset=None if resets_last else self._product(recurrent[direction][border:]),
            input_bias=self._e.constant(biases[0]),
            state_bias=self._e.constant(biases[1][:first]),
            reset_bias=self._e.constant(biases[1][border:]),
            activations=activations,
        )

    def _products(self, layer: _Layer, direction: int, weights: Any, recurrent: Any) -> tuple[Multiply, Multiply]:
        """Return the products with inputs and with states. Raises Declined if scales of quantized weights are not
        constant."""
        if layer.node.domain != CONTRIB:
            return self._product(weights[direction]), self._product(recurrent[direction])
        scales = [self._e.value(name) for name in layer.node.input[8:12]]
        if len(scales) < 4 or any(values is None for values in scales):
            raise Declined
        by_input = self._quantized_product(weights[direction], scales[0][direction], scales[1][direction])
        return by_input, self._quantized_product(recurrent[direction], scales[2][direction], scales[3][direction])

    def _product(self, weights: Any) -> Multiply:
        """Multiply by weights ``[columns, rows]``, as ONNX has them: transposed, TVM would fold them in every step."""
        shared = self._e.constant(weights)

        def multiply(name: str, added: str) -> str:
            return self._e.emit("Gemm", [name, shared, *([added] if added else [])], transB=1)

        return multiply

    def _quantized_product(self, weights: Any, scale: Any, zero: Any) -> Multiply:
        """Multiply by 8-bit weights ``[rows, columns]`` a value that is quantized by its own range."""
        shared = self._e.constant((weights.astype(np.float32) - zero.astype(np.float32)).T)
        factor = self._e.constant(scale)

        def multiply(name: str, added: str) -> str:
            integers, own, _ = self._quantized.dynamic(name)
            total = self._e.emit("Round", [self._e.emit("Gemm", [integers, shared], transB=1)])
            return self._e.emit("Add", [self._e.emit("Mul", [total, self._e.emit("Mul", [own, factor])]), added])

        return multiply

    def _direction(self, cell: _Cell, direction: int, backwards: bool) -> tuple[str, ...]:
        """Emit all steps; return the layer's outputs for this direction."""
        e, layer = self._e, cell.layer
        flat = e.reshape(layer.node.input[0], (layer.steps * layer.batch, layer.inputs))
        given = e.split(cell.by_input(flat, cell.input_bias), 0, [layer.batch] * layer.steps)
        state = self._initial(layer, 5, direction)
        memory = self._initial(layer, 6, direction) if layer.operator == "LSTM" else ""
        step = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[layer.operator]
        states: list[str] = []
        for part in given[::-1] if backwards else given:
            state, memory = step(cell, part, state, memory)
            states.append(state)
        ordered = states[::-1] if backwards else states
        every = e.emit("Concat", ordered, axis=0) if len(ordered) > 1 else ordered[0]
        last = (1, layer.batch, layer.hidden)
        found = (e.reshape(every, (layer.steps, 1, layer.batch, layer.hidden)), e.reshape(state, last))
        return (*found, e.reshape(memory, last)) if memory else found

    def _initial(self, layer: _Layer, place: int, direction: int) -> str:
        name, shape = layer.given(place), (layer.batch, layer.hidden)
        if not name:
            return self._e.constant([[0.0] * layer.hidden] * layer.batch)
        if len(layer.directions) > 1:
            name = self._e.split(name, 0, [1, 1])[direction]
        return self._e.reshape(name, shape)

    def _gates(self, name: str, layer: _Layer, *counts: int) -> list[str]:
        return self._e.split(name, 1, [count * layer.hidden for count in counts])

    def _lstm(self, cell: _Cell, given: str, state: str, memory: str) -> tuple[str, str]:
        e = self._e
        opening, new = self._gates(cell.by_state(state, given), cell.layer, 3, 1)
        entering, leaving, kept = self._gates(e.emit(cell.activations[0], [opening]), cell.layer, 1, 1, 1)
        added = e.emit("Mul", [entering, e.emit(cell.activations[1], [new])])
        memory = e.emit("Add", [e.emit("Mul", [kept, memory]), added])
        return e.emit("Mul", [leaving, e.emit(cell.activations[2], [memory])]), memory

    def _gru(self, cell: _Cell, given: str, state: str, _: str) -> tuple[str, str]:
        e, layer = self._e, cell.layer
        opening, new = self._gates(given, layer, 2, 1)
        by_state = cell.by_state(state, cell.state_bias)
        opened, *renewed = [by_state] if cell.by_reset else self._gates(by_state, layer, 2, 1)
        opening = e.emit(cell.activations[0], [e.emit("Add", [opening, opened])])
        update, reset = self._gates(opening, layer, 1, 1)
        if cell.by_reset:
            from_state = cell.by_reset(e.emit("Mul", [reset, state]), cell.reset_bias)
        else:
            from_state = e.emit("Mul", [reset, renewed[0]])
        new = e.emit(cell.activations[1], [e.emit("Add", [new, from_state])])
        # (1 - update) * new + update * state, with one product.
        return e.emit("Add", [new, e.emit("Mul", [update, e.emit("Sub", [state, new])])]), ""

    def _rnn(self, cell: _Cell, given: str, state: str, _: str) -> tuple[str, str]:
        return self._e.emit(cell.activations[0], [cell.by_state(state, given)]), ""


def apply(model: onnx.ModelProto) -> int:
    """Replace recurrent layers with constant weights and return their number.

    Layers with other activations than sigmoid, tanh and ReLU, with clipping, peepholes, sequences of different lengths
    or too many steps are left.
    """
    count = 0
    # Again after each replacement: only then the shape of what a DynamicQuantizeLSTM returns is known to its readers.
    while found := replace(model, _Unrolling):
        count += found
    return count
