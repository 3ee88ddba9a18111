"""Unrolling of ``Loop`` and ``Scan`` whose number of iterations is known.

Relax imports neither. Relay imports them as recursive functions, which its graph executor cannot run. TensorFlow's
loops compare counters with constants in each iteration; only these operators are evaluated, to count the iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.reference
from onnx import helper, numpy_helper

from tuner.engines.onnx import vetting
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import Declined, Replacements, replace
from tuner.engines.runtime import importing, weights

_METHODS = {("", "Loop"): "_loop", ("", "Scan"): "_scan"}
OPERATORS = frozenset(operator for _, operator in _METHODS)
_MOST_STEPS = 512
_MOST_NODES = 6_000
"""Maximum nodes that take the place of one loop."""
_COUNTING = frozenset({
    "Add", "And", "Cast", "Equal", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Mul", "Not", "Or",
    "Sub",
})  # fmt: skip
"""Operators that are evaluated to count iterations."""
_OPSET = helper.make_opsetid("", 17)
"""Operator set for evaluating them. They compute the same in older and newer ones."""


class _Unrolling(Replacements):
    methods = _METHODS

    def _loop(self, node: onnx.NodeProto) -> None:
        _, condition, *states = node.input
        body, count = graphs.attribute(node, "body"), self._count(node)
        first = self._e.value(condition) if condition else np.True_
        if count is None or first is None or not first.all() or not self._fits(body, count):
            raise Declined
        shared, always = self._shared(body), self._e.constant(True, np.bool_)
        stacked: list[list[str]] = []
        for number in range(count):
            place = self._e.constant(number, np.int64)
            given = zip(body.input, [place, always, *states], strict=True)
            _, *found = self._e.inline(body, {**shared, **{value.name: name for value, name in given}})
            states, made = found[: len(states)], found[len(states) :]
            stacked.append(made)
        self._finish(node, states, [(each, 0) for each in zip(*stacked, strict=True)])

    def _count(self, node: onnx.NodeProto) -> int | None:
        """Return the number of iterations of a loop whose first condition is true; None if it is unknown."""
        body, trips = graphs.attribute(node, "body"), node.input[0]
        limit = self._e.value(trips) if trips else np.int64(_MOST_STEPS + 1)
        if limit is None:
            return None
        most = int(limit.reshape(-1)[0])
        if vetting.goes_on(body, self._e.scalars()):
            return most if trips else None
        return _iterations(body, min(most, _MOST_STEPS + 1), list(node.input)[2:], self._e.value)

    def _scan(self, node: onnx.NodeProto) -> None:
        body, count = graphs.attribute(node, "body"), graphs.attribute(node, "num_scan_inputs", 0)
        states, scanned = list(node.input)[:-count], list(node.input)[-count:]
        axes = graphs.attribute(node, "scan_input_axes", [0] * count)
        backwards = graphs.attribute(node, "scan_input_directions", [0] * count)
        shapes = [self._e.shapes.get(name) for name in scanned]
        if not shapes or any(shape is None for shape in shapes):
            raise Declined
        known = [shape for shape in shapes if shape is not None]
        steps = known[0][axes[0]]
        if not self._fits(body, steps):
            raise Declined
        shared = self._shared(body)
        parts = [
            self._parts(name, shape, axis, is_backwards)
            for name, shape, axis, is_backwards in zip(scanned, known, axes, backwards, strict=True)
        ]
        stacked: list[list[str]] = []
        for number in range(steps):
            given = zip(body.input, [*states, *(part[number] for part in parts)], strict=True)
            found = self._e.inline(body, {**shared, **{value.name: name for value, name in given}})
            states, made = found[: len(states)], found[len(states) :]
            stacked.append(made)
        outputs = len(node.output) - len(states)
        along = graphs.attribute(node, "scan_output_axes", [0] * outputs)
        reverse = graphs.attribute(node, "scan_output_directions", [0] * outputs)
        each = zip(zip(*stacked, strict=True), along, reverse, strict=True)
        self._finish(node, states, [(made[::-1] if is_back else made, axis) for made, axis, is_back in each])

    def _fits(self, body: onnx.GraphProto, steps: int) -> bool:
        return 0 < steps <= _MOST_STEPS and steps * sum(1 for _ in importing.every_node(body.node)) <= _MOST_NODES

    def _shared(self, body: onnx.GraphProto) -> dict[str, str]:
        """Add the body's initializers to the graph once for all steps; return their names there."""
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in body.initializer}
        return {name: self._e.constant(array, array.dtype) for name, array in arrays.items()}

    def _parts(self, name: str, shape: tuple[int, ...], axis: int, is_backwards: int) -> list[str]:
        axis %= len(shape)
        rest = shape[:axis] + shape[axis + 1 :]
        parts = [self._e.reshape(part, rest) for part in self._e.split(name, axis, [1] * shape[axis])]
        return parts[::-1] if is_backwards else parts

    def _finish(self, node: onnx.NodeProto, states: Sequence[str], stacked: list[tuple[Sequence[str], int]]) -> None:
        """Emit the loop's outputs: the last states, and what the steps made, joined along a new axis."""
        for name, output in zip(states, node.output, strict=False):
            if output:
                self._e.emit("Identity", [name], output)
        for (made, axis), output in zip(stacked, list(node.output)[len(states) :], strict=True):
            if output:
                self._e.emit("Concat", [self._e.unsqueeze(name, axis) for name in made], output, axis=axis)


def _iterations(body: onnx.GraphProto, most: int, states: Sequence[str], value: Callable[[str], Any]) -> int | None:
    """Return the number of iterations, at most ``most``, until a body's condition is false; None if it depends on data.

    ``states`` are the loop's initial states in the outer graph; ``value`` returns constants of that graph.
    """
    number, before, *names = (each.name for each in body.input)
    condition, *others = (each.name for each in body.output)
    after = dict(zip(names, others, strict=False))
    makers = {output: node for node in body.node for output in node.output}
    needed = _needed(condition, makers, after)
    own = {tensor.name: tensor for tensor in body.initializer}
    counters = {name: value(outside) for name, outside in zip(names, states, strict=True) if name in needed}
    outside = needed - {number, before, *counters, *makers}
    constants = {name: weights.array(own[name]) if name in own else value(name) for name in outside}
    known = [*counters.values(), *constants.values()]
    if any(array is None or array.size != 1 for array in known) or any(
        makers[name].op_type not in _COUNTING for name in needed & makers.keys()
    ):
        return None
    graph = helper.make_graph(
        [node for node in body.node if node.output[0] in needed],
        "counters",
        [each for each in body.input if each.name in (number, before, *counters)],
        [helper.make_empty_tensor_value_info(name) for name in (condition, *(after[name] for name in counters))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    program = onnx.reference.ReferenceEvaluator(helper.make_model(graph, opset_imports=[_OPSET]))
    for done in range(most):
        goes_on, *found = program.run(None, {number: np.int64(done), before: np.True_, **counters})
        if not goes_on.all():
            return done + 1
        counters = dict(zip(counters, found, strict=True))
    return most


def _needed(condition: str, makers: Mapping[str, onnx.NodeProto], after: Mapping[str, str]) -> set[str]:
    """Return the names of all values that the condition depends on, in this iteration or an earlier one.

    ``makers`` maps a value to its node, ``after`` a state to its value after the iteration.
    """
    needed: set[str] = set()
    wanted = [condition]
    while wanted:
        name = wanted.pop()
        if name not in needed:
            needed.add(name)
            wanted += makers[name].input if name in makers else [after[name]] if name in after else []
    return needed


def apply(model: onnx.ModelProto) -> int:
    """Unroll loops and return their number; those that may end early or that would become too large are left."""
    count = 0
    while found := replace(model, _Unrolling):
        count += found
        # A loop inside another may now have a constant for its number of iterations.
        graphs.lift_constants(model)
    return count
