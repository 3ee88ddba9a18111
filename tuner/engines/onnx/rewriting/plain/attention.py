"""Replacement of attention and rotary embeddings by matrix products and elementwise operators.

ONNX's ``Attention`` of operator set 23 and ONNX Runtime's operators of the domain ``com.microsoft``, with masks,
causality and caches of fixed lengths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import Declined, Replacements, replace

_CONTRIB = "com.microsoft"
_METHODS = {
    ("", "Attention"): "_attention",
    ("", "RotaryEmbedding"): "_rotation",
    (_CONTRIB, "Attention"): "_projected_attention",
    (_CONTRIB, "MultiHeadAttention"): "_attention_of_heads",
    (_CONTRIB, "RotaryEmbedding"): "_contrib_rotation",
}
OPERATORS = frozenset(operator for _, operator in _METHODS)
_LOWEST = float(np.finfo(np.float32).min)
_FILTERED = -10000.0
"""ONNX Runtime's default of ``mask_filter_value``."""
_BY_LENGTH, _BY_HEAD = len("bld"), len("bhld")
"""Ranks: ``[batch, length, heads * size]`` and ``[batch, heads, length, size]``."""


@dataclass(frozen=True, kw_only=True)
class _Tensor:
    """A tensor ``[batch, heads, length, size]``."""

    name: str
    shape: tuple[int, ...]


class _Attention(Replacements):
    methods = _METHODS

    def _attention(self, node: onnx.NodeProto) -> None:
        """Emit ONNX's attention; not its fourth output, the products."""
        mask, *past = _filled(node.input, 6)[3:]
        output, *present, products = _filled(node.output, 4)
        heads = [graphs.attribute(node, name, 0) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
        if products:
            raise Declined
        query, key, value = (self._by_head(*each) for each in zip(list(node.input)[:3], heads, strict=True))
        biases = []
        if mask:
            is_kept = self._e.kinds.get(mask) == TensorProto.BOOL
            biases.append(self._bias(mask, _LOWEST) if is_kept else mask)
        key, value = (self._extended(*each) for each in zip((key, value), past, present, strict=True))
        if graphs.attribute(node, "is_causal", 0):
            biases.append(self._causal(query, key, 0))
        scale = graphs.attribute(node, "scale", 0.0) or 1 / math.sqrt(query.shape[3])
        found = self._attend(query, key, value, scale, biases, softcap=graphs.attribute(node, "softcap", 0.0))
        if len(self._e.shapes[node.input[0]]) == _BY_HEAD:
            self._e.emit("Identity", [found.name], output)
        else:
            self._join(found, output)

    def _attention_of_heads(self, node: onnx.NodeProto) -> None:
        """Emit ONNX Runtime's attention of separate queries, keys and values."""
        given = list(node.input)[:3]
        bias, padding, added, *past = _filled(node.input, 10)[3:]
        heads = graphs.attribute(node, "num_heads")
        if any(past[2:]) or len(given) < len("qkv") or not all(given):
            raise Declined
        if bias:
            sizes = [self._e.shapes[name][-1] for name in given]
            if any(len(self._e.shapes[name]) != _BY_LENGTH for name in given):
                raise Declined
            terms = self._e.split(bias, 0, sizes)
            summed = [self._e.emit("Add", pair) for pair in zip(given, terms, strict=True)]
            self._e.shapes.update((new, self._e.shapes[old]) for new, old in zip(summed, given, strict=True))
            given = summed
        query, key, value = (self._by_head(name, heads) for name in given)
        output, *present, products = _filled(node.output, 4)
        if products:
            raise Declined
        key, value = (self._extended(*each) for each in zip((key, value), past[:2], present, strict=True))
        self._masked(node, query, key, value, padding, added, output)

    def _projected_attention(self, node: onnx.NodeProto) -> None:
        """Emit ONNX Runtime's attention with the projection of its input to queries, keys and values."""
        given, weight, bias, padding, past, added, length = _filled(node.input, 7)
        output, present = _filled(node.output, 2)
        shape, wide = self._e.shapes[given], self._e.shapes[weight][1]
        unusual = any(graphs.attribute(node, name, 0) for name in ("do_rotary", "past_present_share_buffer"))
        if unusual or length or len(shape) != _BY_LENGTH:
            raise Declined
        sizes = list(graphs.attribute(node, "qkv_hidden_sizes") or [wide // 3] * 3)
        projected = self._e.emit("MatMul", [given, weight])
        if bias:
            projected = self._e.emit("Add", [projected, bias])
        names = self._e.split(projected, 2, sizes)
        self._e.shapes.update((name, (*shape[:2], size)) for name, size in zip(names, sizes, strict=True))
        query, key, value = (self._by_head(name, graphs.attribute(node, "num_heads")) for name in names)
        if past:
            each = self._e.split(past, 0, [1, 1])
            old = [self._e.reshape(name, self._e.shapes[past][1:]) for name in each]
            self._e.shapes.update((name, self._e.shapes[past][1:]) for name in old)
            key, value = (self._extended(*pair, "") for pair in zip((key, value), old, strict=True))
        if present:
            stacked = [self._e.unsqueeze(part.name, 0) for part in (key, value)]
            self._e.emit("Concat", stacked, present, axis=0)
        self._masked(node, query, key, value, padding, added, output)

    def _masked(
        self, node: onnx.NodeProto, query: _Tensor, key: _Tensor, value: _Tensor, padding: str, added: str, output: str
    ) -> None:
        """Emit the attention of ONNX Runtime's operators, with the mask ``padding`` and the bias ``added``."""
        biases = [added] if added else []
        if padding:
            kept = self._kept(padding, query, key)
            biases.append(self._bias(kept, graphs.attribute(node, "mask_filter_value", _FILTERED)))
        if graphs.attribute(node, "unidirectional", 0):
            biases.append(self._causal(query, key, key.shape[2] - query.shape[2]))
        scale = graphs.attribute(node, "scale", 0.0) or 1 / math.sqrt(query.shape[3])
        self._join(self._attend(query, key, value, scale, biases), output)

    def _kept(self, mask: str, query: _Tensor, key: _Tensor) -> str:
        """Return a boolean mask that broadcasts to ``[batch, heads, length of queries, length of keys]``.

        ``mask`` has zeros for what is left out, for every key or pair, or the number of keys of each row of the batch.
        """
        batch, length, total = query.shape[0], query.shape[2], key.shape[2]
        shape = self._e.shapes.get(mask)
        if shape == (batch,):
            places = self._e.constant(np.arange(total), np.int32)
            return self._e.emit("Less", [places, self._e.reshape(mask, (batch, 1, 1, 1))])
        if shape not in ((batch, total), (batch, length, total)):
            raise Declined
        spread = self._e.reshape(mask, (batch, 1, 1 if len(shape) == len("bt") else length, total))
        return self._e.cast(spread, TensorProto.BOOL)

    def _bias(self, kept: str, filtered: float) -> str:
        return self._e.emit("Where", [kept, self._e.constant(0), self._e.constant(filtered)])

    def _causal(self, query: _Tensor, key: _Tensor, past: int) -> str:
        """Return the bias with which a query sees ``past`` keys and those up to its own place."""
        pairs = np.full((query.shape[2], key.shape[2]), _LOWEST)
        return self._e.constant(np.triu(pairs, past + 1))

    def _by_head(self, name: str, heads: int) -> _Tensor:
        shape = self._e.shapes.get(name, ())
        if len(shape) == _BY_HEAD:
            return _Tensor(name=name, shape=shape)
        if len(shape) != _BY_LENGTH or not heads:
            raise Declined
        batch, length, wide = shape
        parts = self._e.reshape(name, (batch, length, heads, wide // heads))
        turned = self._e.emit("Transpose", [parts], perm=(0, 2, 1, 3))
        return _Tensor(name=turned, shape=(batch, heads, length, wide // heads))

    def _extended(self, tensor: _Tensor, past: str, present: str) -> _Tensor:
        """Prepend cached keys or values; ``present`` is the output for them all, or empty."""
        if past:
            batch, heads, length, size = tensor.shape
            joined = self._e.emit("Concat", [past, tensor.name], axis=2)
            tensor = _Tensor(name=joined, shape=(batch, heads, length + self._e.shapes[past][2], size))
        if present:
            self._e.emit("Identity", [tensor.name], present)
        return tensor

    def _attend(
        self, query: _Tensor, key: _Tensor, value: _Tensor, scale: float, biases: Sequence[str], softcap: float = 0.0
    ) -> _Tensor:
        e, (batch, heads, length, _) = self._e, query.shape
        total, groups = key.shape[2], key.shape[1]
        # Several heads of queries may share those of keys and values.
        folded = (batch, groups, heads // groups * length)
        is_shared = heads != groups
        queries = e.reshape(query.name, (*folded, query.shape[3])) if is_shared else query.name
        turned = e.emit("Transpose", [key.name], perm=(0, 1, 3, 2))
        scores = e.emit("Mul", [e.emit("MatMul", [queries, turned]), e.constant(scale)])
        if is_shared:
            scores = e.reshape(scores, (batch, heads, length, total))
        if softcap:
            scores = e.emit("Tanh", [e.emit("Mul", [scores, e.constant(1 / softcap)])])
            scores = e.emit("Mul", [scores, e.constant(softcap)])
        for bias in biases:
            scores = e.emit("Add", [scores, bias])
        shares = e.emit("Softmax", [scores], axis=-1)
        if is_shared:
            shares = e.reshape(shares, (*folded, total))
        found, shape = e.emit("MatMul", [shares, value.name]), (batch, heads, length, value.shape[3])
        return _Tensor(name=e.reshape(found, shape) if is_shared else found, shape=shape)

    def _join(self, found: _Tensor, output: str) -> None:
        """Emit ``[batch, length, heads * size]``."""
        batch, heads, length, size = found.shape
        turned = self._e.emit("Transpose", [found.name], perm=(0, 2, 1, 3))
        self._e.reshape(turned, (batch, length, heads * size), output)

    def _rotation(self, node: onnx.NodeProto) -> None:
        """Emit ONNX's rotary embedding."""
        given, cos, sin, places = _filled(node.input, 4)
        self._rotated(node, given, cos, sin, places)

    def _contrib_rotation(self, node: onnx.NodeProto) -> None:
        """Emit ONNX Runtime's rotary embedding, whose places may be given by the first one."""
        given, places, cos, sin = node.input
        if graphs.attribute(node, "is_packed_batching", 0) or graphs.attribute(node, "scale", 1.0) != 1:
            raise Declined
        shape = self._e.shapes[given]
        if self._e.shapes.get(places) == (1,):
            length = shape[2] if len(shape) == _BY_HEAD else shape[1]
            steps = self._e.constant(np.arange(length)[np.newaxis], np.int64)
            places = self._e.emit("Add", [places, steps])
        self._rotated(node, given, cos, sin, places)

    def _rotated(self, node: onnx.NodeProto, given: str, cos: str, sin: str, places: str) -> None:
        """Emit the rotation of pairs of elements; ``cos`` and ``sin`` are tables for ``places``, or for every step.

        The pairs ``(x, y)`` are multiplied by ``(cos, cos)``, and ``(y, x)`` by ``(-sin, sin)``: constant tables become
        constants of full width.
        """
        shape, half = self._e.shapes[given], self._e.shapes[cos][-1]
        is_by_head = len(shape) == _BY_HEAD
        wide = graphs.attribute(node, "rotary_embedding_dim", 0) or 2 * half
        heads = graphs.attribute(node, "num_heads", 0) or shape[-1] // wide
        split = shape if is_by_head else (*shape[:2], heads, shape[2] // heads)
        name = given if is_by_head else self._e.reshape(given, split)
        turned, *rest = self._e.split(name, 3, [wide, split[3] - wide] if split[3] > wide else [wide])
        is_interleaved = bool(graphs.attribute(node, "interleaved", 0))
        if is_interleaved:
            pairs = self._e.split(self._e.reshape(turned, (*split[:3], half, 2)), 4, [1, 1])
            swapped = self._e.reshape(self._e.emit("Concat", pairs[::-1], axis=4), (*split[:3], wide))
        else:
            swapped = self._e.emit("Concat", self._e.split(turned, 3, [half, half])[::-1], axis=3)
        minus = self._e.emit("Neg", [sin])
        # The heads come before the steps, or behind them.
        axis = 1 if is_by_head else 2
        products = []
        for value, both in ((turned, (cos, cos)), (swapped, (minus, sin))):
            table = self._paired(both, self._e.shapes[cos], is_interleaved=is_interleaved)
            found = self._e.emit("Gather", [table, places]) if places else table
            products.append(self._e.emit("Mul", [value, self._e.unsqueeze(found, axis)]))
        joined = self._e.emit("Add", products)
        if rest:
            joined = self._e.emit("Concat", [joined, *rest], axis=3)
        self._e.reshape(joined, shape, node.output[0])

    def _paired(self, tables: Sequence[str], shape: tuple[int, ...], *, is_interleaved: bool) -> str:
        """Return both tables side by side, or element by element."""
        if not is_interleaved:
            return self._e.emit("Concat", tables, axis=len(shape) - 1)
        each = [self._e.unsqueeze(table, len(shape)) for table in tables]
        return self._e.reshape(self._e.emit("Concat", each, axis=len(shape)), (*shape[:-1], 2 * shape[-1]))


def _filled(names: Sequence[str], count: int) -> list[str]:
    """Return ``count`` names, with empty ones for those that are left out."""
    return [*names, *[""] * count][:count]


def apply(model: onnx.ModelProto) -> int:
    """Replace attention and rotary embeddings, and return their number; those with packed operands stay."""
    return replace(model, _Attention)
