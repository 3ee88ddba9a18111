"""Propagation of padding through a network, from the convolutions that create it to operators that cannot read it.

For a padded tensor it is known which channels are real and what the others contain; columns of dense layers count as
channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tuner.engines.onnx import models, ordering
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.aligned import worth
from tuner.engines.runtime import weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Channels:
    """Channels along one axis of a tensor; real ones keep their order."""

    axis: int
    is_real: Any
    """bool [padded]."""
    fill: Any
    """float64 [padded]: value of each padding channel at all positions, for any network input; 0 for real channels."""
    origins: frozenset[str]
    """Outputs of the convolutions and dense layers that created this padding."""

    @classmethod
    def at_end(cls, real: int, whole: int, origin: str, *, axis: int = 1) -> Channels:
        return cls(axis=axis, is_real=np.arange(whole) < real, fill=np.zeros(whole), origins=frozenset([origin]))

    @classmethod
    def real(cls, count: int) -> Channels:
        return cls(axis=1, is_real=np.ones(count, dtype=bool), fill=np.zeros(count), origins=frozenset())

    @classmethod
    def side_by_side(cls, parts: Sequence[Channels]) -> Channels:
        return cls(
            axis=1,
            is_real=np.concatenate([part.is_real for part in parts]),
            fill=np.concatenate([part.fill for part in parts]),
            origins=frozenset().union(*(part.origins for part in parts)),
        )

    @property
    def whole(self) -> int:
        return len(self.is_real)

    @property
    def count(self) -> int:
        """Number of real channels."""
        return int(self.is_real.sum())

    @property
    def positions(self) -> Any:
        """int64 [count]: positions of the real channels, ascending."""
        return np.flatnonzero(self.is_real)

    @property
    def are_first(self) -> bool:
        """Whether all padding comes after the real channels."""
        return bool(self.is_real[: self.count].all())

    def is_like(self, other: Channels) -> bool:
        return self.axis == other.axis and np.array_equal(self.is_real, other.is_real)

    def along(self, axis: int) -> Channels:
        """Return the same channels along another axis."""
        return replace(self, axis=axis)

    def holding(self, fill: Any, *others: Channels) -> Channels:
        """Return the same channels for another tensor, computed from this one and ``others``."""
        origins = self.origins.union(*(other.origins for other in others))
        return replace(self, fill=np.where(self.is_real, 0.0, fill), origins=origins)

    def repeated(self, times: int) -> Channels:
        """Return each channel repeated ``times`` times, with padding of 0."""
        return replace(self, is_real=np.repeat(self.is_real, times), fill=np.zeros(self.whole * times))

    def spread(self, array: Any, axis: int, value: float = 0.0) -> Any:
        """Return ``array``, whose ``axis`` has the real channels, with ``value`` inserted at the padding."""
        shape = list(array.shape)
        shape[axis] = self.whole
        result = np.full(shape, value, dtype=array.dtype)
        index: list[Any] = [slice(None)] * array.ndim
        index[axis] = self.positions
        result[tuple(index)] = array
        return result


_SLICE_TAKES_INPUTS = 10
"""First operator set in which the bounds of ``Slice`` are inputs."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """The original model and facts about it."""

    model: onnx.ModelProto
    lanes: int

    @cached_property
    def shapes(self) -> graphs.Shapes:
        return graphs.shapes(self.model)

    @cached_property
    def opset(self) -> int:
        return models.opset(self.model)

    @cached_property
    def _constants(self) -> dict[str, onnx.TensorProto]:
        fed = {value.name for value in self.model.graph.input}
        return {tensor.name: tensor for tensor in self.model.graph.initializer if tensor.name not in fed}

    def is_constant(self, name: str) -> bool:
        return name in self._constants

    def is_float(self, name: str) -> bool:
        """Return whether a constant is floating-point."""
        return self._constants[name].data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)

    def array(self, name: str) -> Any:
        return weights.array(self._constants[name])


@dataclass(frozen=True, kw_only=True)
class Padded:
    name: str
    """Name of the tensor with padding."""
    channels: Channels


class Flow:
    """The network's nodes with padding; the model is unchanged until ``commit``.

    A padded tensor has a new name; under the original name it exists without padding, if an operator needs it.
    """

    def __init__(self, network: Network, origins: Iterable[str]) -> None:
        self.network = network
        self.origins = frozenset(origins)
        """Outputs of the convolutions and dense layers to pad."""
        self.savings = dict.fromkeys(self.origins, 0.0)
        """Time saved by each origin, in units of operations."""
        self._leaders = {origin: origin for origin in self.origins}
        self._padded: dict[str, Padded] = {}
        self._plain: set[str] = set()
        self._nodes: list[onnx.NodeProto] = []
        self._tensors: dict[str, Callable[[], Any]] = {}
        self._names = graphs.Names(network.model.graph)

    def padded(self, name: str) -> Padded | None:
        return self._padded.get(name)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape without padding."""
        return self.network.shapes.get(name)

    def constant(self, stem: str, make: Callable[[], Any]) -> str:
        """Return the name of a new constant, which is computed on commit."""
        name = self._names.new(stem)
        self._tensors[name] = make
        return name

    def spread(self, name: str, *spreads: tuple[Channels | None, int]) -> str:
        """Return the name of a constant with zeros at the padding of axes, itself if there is no padding."""
        wanted = [(channels, axis) for channels, axis in spreads if channels is not None]
        if not name or not wanted:
            return name

        def make() -> Any:
            array = self.network.array(name)
            for channels, axis in wanted:
                array = channels.spread(array, axis)
            return array

        return self.constant(f"{name}_padded", make)

    def emit(self, node: onnx.NodeProto, inputs: list[str], channels: Channels | None, **attributes: Any) -> None:
        """Emit ``node`` with other ``inputs`` and ``attributes``; its first output has these ``channels``."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = inputs
        for attribute in [each for each in copy.attribute if each.name in attributes]:
            copy.attribute.remove(attribute)
        copy.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        if channels is not None:
            padded = self._names.new(f"{node.output[0]}_padded")
            copy.output[0] = padded
            self._padded[node.output[0]] = Padded(name=padded, channels=channels)
        self._nodes.append(copy)

    def keep(self, node: onnx.NodeProto) -> None:
        """Emit the node unchanged, on tensors without padding."""
        for name in ordering.read_by(node):
            self.remove_padding(name)
        self._nodes.append(node)

    def remove_padding(self, name: str) -> None:
        """Ensure that the tensor exists without padding."""
        padded = self._padded.get(name)
        if padded is None or name in self._plain:
            return
        self._plain.add(name)
        channels = padded.channels
        if channels.are_first:
            self._nodes.append(self._slice(padded, name))
        else:
            positions = self.constant(f"{name}_channels", lambda: channels.positions.astype(np.int64))
            self._nodes.append(helper.make_node("Gather", [padded.name, positions], [name], axis=channels.axis))
        each = worth.SLICED if channels.are_first else worth.TAKEN
        self.save(channels, -each * float(np.prod(self.network.shapes[name])))

    def _slice(self, padded: Padded, name: str) -> onnx.NodeProto:
        bounds = {"starts": [0], "ends": [padded.channels.count], "axes": [padded.channels.axis]}
        if self.network.opset < _SLICE_TAKES_INPUTS:
            return helper.make_node("Slice", [padded.name], [name], **bounds)
        inputs = [self.constant(f"{name}_{key}", partial(np.array, value)) for key, value in bounds.items()]
        return helper.make_node("Slice", [padded.name, *inputs], [name])

    def save(self, channels: Channels | None, operations: float) -> None:
        """Add time saved by padding (negative if lost), in equal shares for all its origins."""
        if channels is not None:
            for origin in channels.origins:
                self.savings[origin] += operations / len(channels.origins)

    def join(self, *channels: Channels) -> None:
        """Group paddings that are useful only together."""
        origins = [origin for each in channels for origin in each.origins]
        for origin in origins[1:]:
            self._leaders[self._leader(origin)] = self._leader(origins[0])

    def _leader(self, origin: str) -> str:
        while self._leaders[origin] != origin:
            origin = self._leaders[origin]
        return origin

    def losing(self) -> frozenset[str]:
        """Return the origins of paddings that cost more than they save."""
        sums: dict[str, float] = {}
        for origin, saved in self.savings.items():
            sums[self._leader(origin)] = sums.get(self._leader(origin), 0.0) + saved
        return frozenset(origin for origin in self.origins if sums[self._leader(origin)] <= 0)

    def commit(self) -> None:
        """Write the padded network to the model."""
        graph = self.network.model.graph
        tensors = [numpy_helper.from_array(make(), name) for name, make in self._tensors.items()]
        graphs.replace_nodes(graph, self._nodes)
        graph.initializer.extend(tensors)
        graphs.drop_unused(graph)
