"""Convolutions of the same tensor that are added up become one.

Networks are trained with parallel branches of each layer, which are added up: convolutions, normalizations and the
input itself (RepVGG; Ding et al., CVPR 2021). All are linear, so that their sum is one convolution. Many models are
exported as they were trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from tuner.engines.onnx.rewriting import graphs

_EPSILON = 1e-5
"""ONNX's default of ``BatchNormalization``."""


def apply(model: onnx.ModelProto, lanes: int) -> int:  # noqa: ARG001 - every pass is given them
    """Join convolutions that are added up and return the number of sums that are left out."""
    return _Joining(model).run()


@dataclass(frozen=True, kw_only=True)
class _Linear(graphs.Turned):
    """A convolution of ``source``, or the form of one that an operator has."""

    node: onnx.NodeProto | None
    """The operator that computes it; None if it is made of several."""
    is_convolution: bool
    """Whether a convolution is part of it, not only factors and biases of channels."""
    source: str
    weights: Any
    """``[filters, depth, *kernel]``, float32."""
    bias: Any
    groups: int
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    @property
    def kernel(self) -> tuple[int, ...]:
        return tuple(self.weights.shape[2:])

    def scaled(self, factors: Any) -> _Linear:
        """Return the form of its product by one number for each filter."""
        weights = self.weights * factors.reshape(-1, *[1] * (self.weights.ndim - 1))
        return replace(self, node=None, weights=weights, bias=self.bias * factors)

    def within(self, other: _Linear) -> _Linear | None:
        """Return the same with the groups and the kernel size of ``other``; None if these cannot hold its weights."""
        rank = len(self.strides)
        if self.strides != other.strides or self.groups % other.groups or not other.is_convolution:
            return None
        spread = self._spread(other.groups)
        if spread is None:
            return None
        places = []
        for axis in range(rank):
            distance, step = other.pads[axis] - self.pads[axis], other.dilations[axis]
            taps = self.kernel[axis]
            last = distance // step + taps
            is_aligned = distance >= 0 and distance % step == 0 and last <= other.kernel[axis]
            if not is_aligned or (taps > 1 and self.dilations[axis] != step):
                return None
            places.append((distance // step, other.kernel[axis] - last))
        weights = np.pad(spread, [(0, 0), (0, 0), *places])
        return replace(other, node=None, weights=weights, bias=self.bias)

    def _spread(self, groups: int) -> Any | None:
        """Return the weights with fewer groups; None unless each group has one filter or the groups are the same."""
        filters, depth = self.weights.shape[:2]
        if groups == self.groups:
            return self.weights
        if self.groups != filters or depth != 1:
            return None
        spread = np.zeros((filters, filters // groups, *self.kernel), np.float32)
        every = np.arange(filters)
        spread[every, every % (filters // groups)] = self.weights[:, 0]
        return spread


class _Joining(graphs.GraphWalk[_Linear]):
    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__(model)
        self._uses = graphs.uses(model.graph)

    def turned(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Linear | None:
        if len(shape) < 3:
            return None
        if node.op_type == "Conv":
            return self._convolution(node, len(shape) - 2)
        if node.op_type == "BatchNormalization":
            return self._normalization(node, len(shape) - 2)
        if node.op_type in ("Add", "Sub"):
            return self._sum(node, shape)
        return self._product(node, shape) if node.op_type == "Mul" else None

    def restore(self, form: _Linear, name: str) -> None:
        if form.node is not None:
            self._nodes.append(form.node)
            return
        weights, bias = (self.constant(name, each) for each in (form.weights, form.bias))
        how = {"strides": form.strides, "dilations": form.dilations, "pads": form.pads, "kernel_shape": form.kernel}
        self.emit("Conv", [form.source, weights, bias], name, group=form.groups, **how)

    def _convolution(self, node: onnx.NodeProto, rank: int) -> _Linear | None:
        source, *given = (name for name in node.input if name)
        constants = self._floats(given)
        if constants is None or graphs.attribute(node, "auto_pad", b"NOTSET") != b"NOTSET":
            return None
        weights, *bias = constants
        self.need(source)
        ones, zeros = [1] * rank, [0] * (2 * rank)
        return _Linear(
            node=node,
            is_convolution=True,
            source=source,
            weights=weights,
            bias=bias[0] if bias else np.zeros(len(weights), np.float32),
            groups=int(graphs.attribute(node, "group", 1)),
            strides=tuple(graphs.attribute(node, "strides") or ones),
            dilations=tuple(graphs.attribute(node, "dilations") or ones),
            pads=tuple(graphs.attribute(node, "pads") or zeros),
        )

    def _normalization(self, node: onnx.NodeProto, rank: int) -> _Linear | None:
        constants = self._floats(node.input[1:])
        if constants is None or graphs.attribute(node, "training_mode", 0):
            return None
        scale, shift, mean, variance = (each.astype(np.float64) for each in constants)
        factors = scale / np.sqrt(variance + graphs.attribute(node, "epsilon", _EPSILON))
        self.need(node.input[0])
        return _of_channels(node, node.input[0], factors, shift - mean * factors, rank)

    def _sum(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Linear | None:
        found = [self._term(name, shape) for name in node.input]
        sources = {each.source for each in found if each is not None}
        left, right = (
            self._itself(name, shape) if each is None and name in sources else each
            for name, each in zip(node.input, found, strict=True)
        )
        if left is None or right is None or left.source != right.source:
            return None
        if node.op_type == "Sub":
            right = right.scaled(np.full(shape[1], -1, np.float32))
        for one, other in ((left, right), (right, left)):
            fitted = one.within(other)
            if fitted is not None:
                self.count += 1
                return replace(other, node=None, weights=other.weights + fitted.weights, bias=other.bias + fitted.bias)
        return None

    def _product(self, node: onnx.NodeProto, shape: tuple[int, ...]) -> _Linear | None:
        for name, other in (node.input, node.input[::-1]):
            form, found = self._term(name, shape), self._floats([other])
            if form is None or not form.is_convolution or found is None or found[0].ndim > len(shape):
                continue
            [factors] = found
            sizes = (*[1] * (len(shape) - factors.ndim), *factors.shape)
            if math.prod(sizes) == sizes[1]:
                return form.scaled(np.broadcast_to(factors.reshape(-1), shape[1:2]))
        return None

    def _term(self, name: str, shape: tuple[int, ...]) -> _Linear | None:
        """Return the form of a tensor of that shape; None if more than one operator reads it."""
        is_alone = self._uses[name] == 1 and self.shapes.get(name) == shape
        return self.forms.get(name) if is_alone else None

    def _itself(self, name: str, shape: tuple[int, ...]) -> _Linear | None:
        if self.shapes.get(name) != shape:
            return None
        return _of_channels(None, name, np.ones(shape[1]), np.zeros(shape[1]), len(shape) - 2)

    def _floats(self, names: Iterable[str]) -> list[Any] | None:
        """Return the arrays of constants; None unless all of them are constants in float32."""
        found = [self.constants.get(name) for name in names]
        if any(each is None or each.data_type != onnx.TensorProto.FLOAT for each in found):
            return None
        return [self.array(each.name) for each in found if each is not None]


def _of_channels(node: onnx.NodeProto | None, source: str, factors: Any, bias: Any, rank: int) -> _Linear:
    return _Linear(
        node=node,
        is_convolution=False,
        source=source,
        weights=factors.astype(np.float32).reshape(-1, *[1] * (rank + 1)),
        bias=bias.astype(np.float32),
        groups=len(factors),
        strides=(1,) * rank,
        dilations=(1,) * rank,
        pads=(0,) * (2 * rank),
    )
