"""How large tensors can become whose sizes only a run decides.

TVM's virtual machine keeps such sizes as numbers in a *shape heap*. Those that a run reads from tensors are limited by
what they are sizes of: ``dynamic_strided_slice`` makes no axis longer than it was, and no more elements are not 0 than
there are. TVM computes the others from these.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, sym, tirx

from tuner.engines.relax.executables import LOADED, NONZERO, Match

_SLICE = "dynamic_strided_slice"
"""How TVM names the functions of that operator."""
_COMPUTES = "tirx.is_host_func"
"""Attribute of functions that compute numbers of the heap from others."""
_WITHOUT_LIMIT = int(sym.ConstIntBound.POS_INF)

_Shape = Sequence[Any]
"""Each size is an int, a variable for a number of the heap, or a formula of such variables."""


def largest(module: Any) -> dict[int, int]:
    """Return, by their positions in the heap of ``main``, the most that numbers can be, of those that have a limit.

    ``module`` is as the pass ``VMShapeLower`` leaves it.
    """
    walk = _Walk(module)
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            walk.visit(binding.var, binding.value)
    return walk.most()


class _Walk:
    """A walk through ``main``, with a variable for each number of the heap."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._numbers: dict[int, tirx.Var] = {}
        self._shapes: dict[Any, _Shape] = {}
        """Of shapes and tensors, by their variables."""
        self._limits: list[tuple[tirx.Var, Any]] = []
        """Numbers, and what they do not exceed."""
        self._computed: list[tuple[tirx.Var, Any]] = []

    def most(self) -> dict[int, int]:
        analyzer, known, before = sym.Analyzer(), dict[tirx.Var, int](), -1
        while len(known) > before:
            before = len(known)
            for number, formula in (*self._limits, *self._computed):
                most = _bound(analyzer, formula)
                if number not in known and most < _WITHOUT_LIMIT:
                    known[number] = most
                    analyzer.bind(number, tvm.ir.Range(0, most + 1))
        return {position: known[number] for position, number in self._numbers.items() if number in known}

    def visit(self, variable: Any, value: Any) -> None:
        if isinstance(value, relax.Var):
            self._same(variable, value)
        elif isinstance(value, relax.Call):
            self._call(variable, value)

    def _call(self, variable: Any, call: Any) -> None:
        if isinstance(call.op, tvm.ir.GlobalVar):
            self._function(call.op.name_hint, call.args)
            return
        name = call.op.global_symbol if isinstance(call.op, relax.ExternFunc) else call.op.name
        if name == "vm.builtin.make_shape":
            self._shapes[variable] = [self._number(value) if code == LOADED else value for code, value in _rules(call)]
        elif name == "vm.builtin.match_shape":
            self._match(call)
        elif name == "vm.builtin.reshape":
            self._same(variable, call.args[1])
        elif name == NONZERO:
            if shape := self._shape(call.args[0]):
                self._shapes[variable] = [len(shape), functools.reduce(operator.mul, shape)]
        elif name == "relax.vm.alloc_tensor":
            self._same(variable, call.args[2])

    def _shape(self, tensor: Any) -> _Shape:
        """Return the shape of a tensor; empty if it is not known, or of a scalar."""
        return self._shapes.get(tensor) or _constant(tensor.ty.shape)

    def _same(self, variable: Any, shape: Any) -> None:
        if found := self._shapes.get(shape) or _constant(shape):
            self._shapes[variable] = found

    def _match(self, call: Any) -> None:
        for (code, value), size in zip(_rules(call), self._shapes.get(call.args[0], ()), strict=False):
            if code == Match.STORE:
                self._limits.append((self._number(value), size))

    def _function(self, name: str, arguments: Sequence[Any]) -> None:
        function = self._module[name]
        if name.startswith(_SLICE):
            given, made = self._shape(arguments[0]), self._shape(arguments[-1])
            if len(made) == len(given):
                limited = zip(made, given, strict=True)
                self._limits += [(number, most) for number, most in limited if isinstance(number, tirx.Var)]
        elif function.attrs and _COMPUTES in function.attrs:
            tvm_ffi.structural_walk(function.body, (tirx.BufferStore, self._store))

    def _store(self, node: Any) -> None:
        # In the place of what it loads from the heap, variables can have limits.
        formula = tvm_ffi.structural_map(node.value, (tvm.ir.TensorLoad, lambda load: self._number(load.indices[0])))
        self._computed.append((self._number(node.indices[0]), formula))

    def _number(self, at: Any) -> tirx.Var:
        position = int(at)
        return self._numbers.setdefault(position, tirx.Var(f"number{position}", "int64"))


def _constant(shape: Any) -> _Shape:
    """Return the numbers of a shape; empty if it has other sizes, too."""
    sizes = shape.values if isinstance(shape, relax.ShapeExpr) else ()
    return [int(size) for size in sizes] if all(isinstance(size, tirx.IntImm) for size in sizes) else ()


def _bound(analyzer: Any, formula: Any) -> int:
    return formula if isinstance(formula, int) else int(analyzer.const_int_bound(formula).max_value)


def _rules(call: Any) -> list[tuple[int, int]]:
    """Return the pairs of code and value at the end of the arguments, after the rank."""
    numbers = [int(each) for each in call.args if isinstance(each, tirx.IntImm)]
    return list(zip(numbers[1::2], numbers[2::2], strict=True))
