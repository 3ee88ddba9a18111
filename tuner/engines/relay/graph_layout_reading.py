"""Conversion of Relay modules to ``graph_layout.LayoutNetwork``, and of records to states of their convolutions.

Which operators propagate which layouts follows ``AlterOpLayout``: each operator's rule is its ``FInferCorrectLayout``
in TVM's ``src/relay/op``; operators without a rule propagate nothing.

Every implementation of a convolution adds states of its own. The knobs ``tile_ic`` and ``tile_oc`` of a blocked
template give its input and output blocks, which must be those that its layout hook requests from ``AlterOpLayout``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relay

from tuner.engines.relay import defaults, extracting, importing, simplifying, workloads
from tuner.engines.relay.graph_layout import PLAIN, LayoutNetwork, LayoutOperator, OperatorKind, TensorState
from tuner.engines.relay.workloads import Pair

_CHANNELS = 1
_RANK = 4
_NEVER = ("transpose", "reshape", "squeeze", "expand_dims", "layout_transform", "nn.dense", "nn.batch_flatten")
"""Operators with a rule that does not let blocked channels through."""


@simplifying.with_last_kept
def read(imported: importing.Imported, target: Any) -> LayoutNetwork:
    """Return the network as it is in ``relay.build`` just before ``AlterOpLayout``; that takes seconds.

    A convolution's group is the tuple of the workload keys of its implementations, as ``extracting`` names them. Only
    convolutions that TVM converts to blocked layouts have a group; the layouts of others are fixed.
    """
    simplified = simplifying.simplified(imported, target).module
    # Folding replaces functions in the module that it is given, and the simplified one is shared.
    simplified = tvm.IRModule(dict(simplified.functions.items()), simplified.type_definitions)
    with tvm.transform.PassContext(opt_level=3, instruments=[simplifying.Folding()]):
        body = relay.transform.FoldConstant()(simplified)["main"].body
    reader = _Reader(target)
    relay.analysis.post_order_visit(body, reader.visit)
    return LayoutNetwork(operators=tuple(reader.operators), outputs=tuple(reader.positions(body)))


class _Reader:
    def __init__(self, target: Any) -> None:
        self.operators: list[LayoutOperator] = []
        self._target = target
        self._positions: dict[Any, int] = {}
        self._groups: dict[Any, tuple[str, ...]] = {}

    def visit(self, node: Any) -> None:
        if isinstance(node, relay.Constant | relay.Tuple | tvm.ir.Op):
            return
        if isinstance(node, relay.Call):
            operator = self._call(node)
        elif isinstance(node, relay.TupleGetItem):
            operator = self._like(node, OperatorKind.FOLLOWS, self.positions(node.tuple_value))
        else:
            # An input, or a function, branch or match: layouts do not propagate through unknown nodes.
            operator = self._like(node, OperatorKind.SOURCE, [])
        self._positions[node] = len(self.operators)
        self.operators.append(operator)

    def positions(self, node: Any) -> list[int]:
        """Return the positions of the operators that make up a value; none for constants."""
        if isinstance(node, relay.Tuple):
            return [position for each in node.fields for position in self.positions(each)]
        return [self._positions[node]] if node in self._positions else []

    def _call(self, call: Any) -> LayoutOperator:
        inputs = [position for argument in call.args for position in self.positions(argument)]
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
        if name == "nn.conv2d":
            group = self._group(call)
            # Computed weights, as FoldScaleAxis creates for gates, are packed for any blocks.
            if group and (data := self.positions(call.args[0])):
                return self._like(call, OperatorKind.CHOSEN, data, group=group)
        if not inputs or name in _NEVER or not _has_rule(call):
            return self._like(call, OperatorKind.OPAQUE, inputs)
        if name == "concatenate":
            shared = all(rank == _RANK for rank in _ranks(call.args[0].checked_type))
            return self._like(call, OperatorKind.JOINS if shared else OperatorKind.OPAQUE, inputs)
        return self._through(call, name)

    def _through(self, call: Any, name: str) -> LayoutOperator:
        """Return an operator that follows one of its inputs: the first with all four axes."""
        found = [(position, argument) for argument in call.args for position in self.positions(argument)]
        # Broadcast vectors are too small to matter.
        shaped = [position for position, argument in found if _ranks(argument.checked_type) == [_RANK]]
        if not shaped:
            return self._like(call, OperatorKind.OPAQUE, [position for position, _ in found])
        divisor = _DIVISORS[name](call) if name in _DIVISORS else 0
        return self._like(call, OperatorKind.FOLLOWS, shaped, divisor=divisor, strict=name == "split" and _even(call))

    def _group(self, call: Any) -> tuple[str, ...]:
        signature = (str(call.attrs), *(str(argument.checked_type) for argument in call.args))
        if signature not in self._groups:
            self._groups[signature] = tuple(extracting.implementations(call, self._target))
        return self._groups[signature]

    def _like(self, node: Any, kind: OperatorKind, inputs: Sequence[int], **more: Any) -> LayoutOperator:
        return LayoutOperator(kind=kind, elements=_elements(node.checked_type), inputs=tuple(inputs), **more)


def _has_rule(call: Any) -> bool:
    return isinstance(call.op, tvm.ir.Op) and call.op.get_attr("FInferCorrectLayout") is not None


def _ranks(kind: Any) -> list[int]:
    if isinstance(kind, relay.TupleType):
        return [rank for field in kind.fields for rank in _ranks(field)]
    return [len(kind.shape)] if isinstance(kind, relay.TensorType) else [0]


def _elements(kind: Any) -> int:
    if isinstance(kind, relay.TupleType):
        return sum(_elements(field) for field in kind.fields)
    if not isinstance(kind, relay.TensorType):
        return 0
    return math.prod(int(size) for size in kind.shape if isinstance(size, tvm.tir.IntImm))


def _even(call: Any) -> bool:
    """Return whether a split is into equal parts: TVM 0.19 blocks it even if the block does not divide a part."""
    return isinstance(call.attrs.indices_or_sections, int | tvm.tir.IntImm)


def _split(call: Any) -> int:
    if int(call.attrs.axis) % _RANK != _CHANNELS:
        return 0
    sections = call.attrs.indices_or_sections
    if _even(call):
        return int(call.args[0].checked_type.shape[_CHANNELS]) // int(sections)
    return math.gcd(*(int(index) for index in sections))


def _slice(call: Any) -> int:
    attributes = call.attrs
    axes = [int(axis) % _RANK for axis in attributes.axes] if attributes.axes else list(range(len(attributes.begin)))
    if _CHANNELS not in axes:
        return 0
    place = axes.index(_CHANNELS)
    channels = int(call.args[0].checked_type.shape[_CHANNELS])
    begin, end = int(attributes.begin[place]), int(attributes.end[place])
    if len(attributes.strides) > place and int(attributes.strides[place]) != 1:
        return 1
    if (begin, end) == (0, channels):
        return 0
    return math.gcd(begin, end) or 1


def _pad(call: Any) -> int:
    return 1 if any(int(width) for width in call.attrs.pad_width[_CHANNELS]) else 0


_DIVISORS: dict[str, Callable[[Any], int]] = {"split": _split, "strided_slice": _slice, "nn.pad": _pad}
"""For operators that cut channels, the size that blocks must divide: 0 if they do not cut, 1 if no block fits."""


Blocks = tuple[int, int]
"""Blocks of input and output; ``PLAIN`` if channels are not blocked."""


def blocks(name: str, config: Any) -> Blocks:
    """Return the input and output blocks of a schedule of the AutoTVM task ``name`` inside a network."""
    if "NCHWc" not in name:
        return PLAIN, PLAIN
    entities = config._entity_map
    takes, gives = (int(entities[knob].size[-1]) if knob in entities else PLAIN for knob in defaults.LAYOUT_KNOBS)
    return takes, gives


def by_workload(pairs: Sequence[Pair]) -> dict[str, list[TensorState]]:
    """Return, by workload, the fastest valid record for each pair of blocks; a state's name is the record's index."""
    found: dict[str, dict[Blocks, TensorState]] = {}
    for place, (measured, result) in enumerate(pairs):
        if result.error_no != 0 or not workloads.is_sound(measured.task, measured.config):
            continue
        takes, gives = blocks(measured.task.name, measured.config)
        state = TensorState(takes=takes, gives=gives, seconds=float(np.mean(result.costs)), name=place)
        known = found.setdefault(workloads.key(measured.task), {})
        if (takes, gives) not in known or state.seconds < known[takes, gives].seconds:
            known[takes, gives] = state
    return {key: list(known.values()) for key, known in found.items()}


def of_network(
    network: LayoutNetwork, recorded: dict[str, list[TensorState]], untuned: Callable[[str], Blocks]
) -> dict[Any, list[TensorState]]:
    """Return the states of each group's records, or else the untuned build's, whose time is unknown."""
    chosen: Iterator[Any] = (each.group for each in network.operators if each.kind == OperatorKind.CHOSEN)
    states = {}
    for group in dict.fromkeys(chosen):
        found = [state for key in group for state in recorded.get(key, ())]
        states[group] = found or [_unknown(group, untuned)]
    return states


def _unknown(group: Sequence[str], untuned: Callable[[str], Blocks]) -> TensorState:
    takes, gives = next((pair for key in group if any(pair := untuned(key))), (PLAIN, PLAIN))
    return TensorState(takes=takes, gives=gives, seconds=0.0)
