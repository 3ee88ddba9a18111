"""Replacement of ``Einsum`` by ``MatMul``, which engines have schedules for, or by sums and transpositions."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence

import onnx

from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import Declined, Replacements, replace

OPERATORS = frozenset({"Einsum"})
_METHODS = {("", "Einsum"): "_einsum"}
_REST = "..."


class _Einsums(Replacements):
    methods = _METHODS

    def _einsum(self, node: onnx.NodeProto) -> None:
        terms, result = self._terms(node)
        sizes = self._sizes(node, terms)
        needed = {*result, *(set(terms[0]) & set(terms[1]) if len(terms) > 1 else ())}
        summed = [self._summed(*each, needed) for each in zip(node.input, terms, strict=True)]
        if len(summed) == 1:
            [(name, term)] = summed
            self._e.emit("Identity", [self._ordered(name, term, result)], node.output[0])
            return
        (one, left), (other, right) = summed
        # Swapped if what is last in the result is of the first: else the product would have to be transposed.
        if result and result[-1] in left and result[-1] not in right:
            (one, left), (other, right) = (other, right), (one, left)
        self._product(node, (one, left), (other, right), result, sizes)

    def _terms(self, node: onnx.NodeProto) -> tuple[list[str], str]:
        """Return the letters of the axes of each operand and of the result, an ellipsis as letters, too."""
        equation = graphs.attribute(node, "equation").decode().replace(" ", "")
        left, arrow, result = equation.partition("->")
        terms, shapes = left.split(","), [self._e.shapes.get(name) for name in node.input]
        if len(terms) > 2 or len(terms) != len(shapes) or not all(map(bool, shapes)):
            raise Declined
        if not arrow:
            joined = left.replace(",", "").replace(_REST, "")
            result = _REST * (_REST in left) + "".join(sorted(each for each in set(joined) if joined.count(each) == 1))
        free = [each for each in string.ascii_letters if each not in equation]
        ranks = [len(shape or ()) - len(term.replace(_REST, "")) for term, shape in zip(terms, shapes, strict=True)]
        rest = max((rank for rank, term in zip(ranks, terms, strict=True) if _REST in term), default=0)
        spelled = [
            term.replace(_REST, "".join(free[rest - rank : rest])) for term, rank in zip(terms, ranks, strict=True)
        ]
        result = result.replace(_REST, "".join(free[:rest]))
        return spelled, result

    def _sizes(self, node: onnx.NodeProto, terms: Sequence[str]) -> dict[str, int]:
        """Return the size of each axis by its letter. Raises Declined for a diagonal or an axis that is broadcast."""
        sizes: dict[str, int] = {}
        for name, term in zip(node.input, terms, strict=True):
            shape = self._e.shapes[name]
            if len(term) != len(shape) or len(set(term)) != len(term):
                raise Declined
            if any(sizes.setdefault(letter, size) != size for letter, size in zip(term, shape, strict=True)):
                raise Declined
        return sizes

    def _summed(self, name: str, term: str, needed: set[str]) -> tuple[str, str]:
        """Return an operand, summed along the axes that nothing else has."""
        axes = [axis for axis, letter in enumerate(term) if letter not in needed]
        kept = "".join(letter for letter in term if letter in needed)
        return (self._e.reduced("ReduceSum", name, axes, keepdims=0) if axes else name), kept

    def _ordered(self, name: str, term: str, wanted: str) -> str:
        order = [term.index(letter) for letter in wanted]
        return name if order == sorted(order) else self._e.emit("Transpose", [name], perm=order)

    def _product(
        self, node: onnx.NodeProto, one: tuple[str, str], other: tuple[str, str], result: str, sizes: Mapping[str, int]
    ) -> None:
        """Emit a product of matrices for each place along the axes that all have."""
        shared = [letter for letter in result if letter in one[1] and letter in other[1]]
        inner = [letter for letter in one[1] if letter in other[1] and letter not in result]
        rows = [letter for letter in result if letter in one[1] and letter not in shared]
        columns = [letter for letter in result if letter in other[1] and letter not in shared]
        factors = [
            (self._ordered(*each, "".join([*shared, *axes[0], *axes[1]])), axes)
            for each, axes in ((one, (rows, inner)), (other, (inner, columns)))
        ]
        places = [sizes[letter] for letter in shared]
        if not inner or not (rows or columns):
            left = self._e.reshape(
                factors[0][0], [*places, *(sizes[each] for each in [*rows, *inner]), *[1] * len(columns)]
            )
            right = self._e.reshape(
                factors[1][0], [*places, *[1] * len(rows), *(sizes[each] for each in [*inner, *columns])]
            )
            product = self._e.emit("Mul", [left, right])
            if inner:
                axes = range(len(shared), len(shared) + len(inner))
                product = self._e.reduced("ReduceSum", product, list(axes), keepdims=0)
        else:
            matrices = [
                name
                if all(len(axis) == 1 for axis in axes)
                else self._e.reshape(name, [*places, *(math.prod(sizes[each] for each in axis) for axis in axes)])
                for name, axes in factors
            ]
            product = self._e.emit("MatMul", matrices)
            if len(rows) != 1 or len(columns) != 1:
                product = self._e.reshape(product, [*places, *(sizes[letter] for letter in [*rows, *columns])])
        self._e.emit("Identity", [self._ordered(product, "".join([*shared, *rows, *columns]), result)], node.output[0])


def apply(model: onnx.ModelProto) -> int:
    """Replace ``Einsum`` of one or two operands, no axis of which is read along a diagonal, and return their number."""
    return replace(model, _Einsums)
