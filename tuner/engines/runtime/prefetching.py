"""Prefetches of weights: cores read ahead within a page of memory only, and packed weights are read page after page.

A product of few rows uses each weight a few times and then needs the next one, so that it waits for memory. Kernels
ask for the weights that they need 8 KiB later (Callahan, Kennedy and Porterfield, ASPLOS 1991).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.engines.runtime.compiling import Release

_AHEAD = 8 << 10
"""Bytes; 4 and 12 KiB were as good, 2 and 24 KiB worse."""
_FEWEST_BYTES = 256 << 10
"""Of weights: fewer stay in the second cache while a network runs."""
_MOST_ROWS = 512
"""Rows of the product from which on arithmetic hides the wait."""
_LINE = 64
_MOST_LINES = 8
"""Cache lines an iteration; a loop that reads more is left to the core."""
_SERIAL = 0
_CPUS = ("sapphirerapids", "emeraldrapids", "graniterapids", "znver5")
"""LLVM's names of CPUs that gain; a Zen 4 gains nothing and loses up to 4 % (docs/decisions/0082-prefetches.md)."""
_FOR_READING = (0, 3, 1)
"""Arguments of ``llvm.prefetch``: to read, into all caches, data."""


def pays(target: Any) -> bool:
    """Whether the CPU of a ``tvm.target.Target`` is of a kind that gains from prefetches."""
    return str(target.kind) == "llvm" and str(target.attrs.get("mcpu", "")) in _CPUS


@dataclass(frozen=True, kw_only=True)
class Loop:
    extent: int
    stride: int
    """Bytes between the weights of one iteration and those of the next."""
    sums: bool
    """Whether it is a serial loop whose iterations add to the same elements."""


def place(loops: Sequence[Loop], *, item: int, size: int, rows: int) -> tuple[int, int] | None:
    """Return the number of the loop that reads weights one after another, and the cache lines of each iteration.

    ``loops`` are those around a read, from the outermost. ``item`` are the bytes that it reads, ``size`` those of all
    weights, ``rows`` how often each weight is read. None if nothing is to be asked for.
    """
    if size < _FEWEST_BYTES or rows > _MOST_ROWS:
        return None
    dense = item
    for number, loop in reversed(list(enumerate(loops))):
        if loop.stride == 0 or loop.extent == 1:
            continue
        if loop.stride != dense:
            return None
        if loop.sums and dense >= _LINE:
            lines = dense // _LINE
            return (number, lines) if lines <= _MOST_LINES else None
        dense *= loop.extent
    return None


@dataclass(frozen=True, kw_only=True)
class Walks:
    """What releases of TVM have different functions for."""

    transform: Callable[[Any, Callable[[Any], None], Callable[[Any], Any]], Any]
    """``transform(body, enter, leave)``: calls both with each loop and ``enter`` with each store; ``leave`` returns a
    loop to replace its loop with, or None."""
    visit: Callable[[Any, Callable[[Any], None]], None]
    """``visit(expression, seen)`` calls ``seen`` with each node."""
    substitute: Callable[[Any, dict[Any, Any]], Any]
    linear: Callable[[Any, list[Any]], Any]
    """TVM's ``detect_linear_equation``."""
    given: Callable[[Any], dict[Any, Sequence[Any]]]
    """Returns the shape of each flat buffer of a function's parameters, by what ``source`` returns for its reads."""
    source: Callable[[Any], Any | None]
    """Returns what a node reads, None if it does not read a buffer."""
    call: Callable[..., Any]
    """``call(load, index, *arguments)`` calls ``llvm.prefetch`` for another element of what ``load`` reads."""
    dtype: Callable[[Any], str]
    """Returns the dtype of a read."""


class Prefetching:
    """Adds prefetches to functions of one TVM release, once their buffers are flat and while their loops are whole."""

    def __init__(self, release: Release, walks: Walks) -> None:
        self._tir = getattr(release.tvm, release.tir)
        self._data_type = release.tvm.DataType
        self._walks = walks

    def add(self, function: Any) -> Any:
        """Return the ``PrimFunc`` with prefetches of what it is given."""
        shapes = self._walks.given(function)
        given = {source: math.prod(map(int, shape)) for source, shape in shapes.items() if self._are_known(shape)}
        around: list[Any] = []
        asked: dict[Any, dict[Any, list[Any]]] = {}
        """By loop and buffer: the same weights may be read for several rows."""

        def enter(node: Any) -> None:
            if isinstance(node, self._tir.For):
                around.append(node)
                return
            for source, load in self._reads(node.value):
                if source in given and (found := self._requests(load, node, around, given[source])):
                    asked.setdefault(found[0], {}).setdefault(source, found[1])

        def leave(node: Any) -> Any:
            if not isinstance(node, self._tir.For):
                return None
            around.pop()
            requests = [each for several in asked.pop(node.loop_var, {}).values() for each in several]
            return self._with_body(node, self._tir.SeqStmt([*requests, node.body])) if requests else None

        return function.with_body(self._walks.transform(function.body, enter, leave))

    def _reads(self, value: Any) -> list[tuple[Any, Any]]:
        found: list[tuple[Any, Any]] = []

        def see(node: Any) -> None:
            if (source := self._walks.source(node)) is not None:
                found.append((source, node))

        self._walks.visit(value, see)
        return found

    def _requests(self, load: Any, store: Any, around: Sequence[Any], size: int) -> tuple[Any, list[Any]] | None:
        """Return the variable of the loop to ask in, and the statements that ask."""
        if not self._are_known([loop.extent for loop in around]):
            return None
        [index], item = load.indices, self._bytes(load)
        if isinstance(index, self._tir.Ramp):
            index, element = index.base, item // int(index.lanes)
        else:
            element = item
        strides = self._strides(index, around)
        inner = around[len(around) - len(strides) :]
        loops = [
            Loop(
                extent=int(loop.extent),
                stride=stride * element,
                sums=int(loop.kind) == _SERIAL and not self._uses(store.indices[0], loop.loop_var),
            )
            for loop, stride in zip(inner, strides, strict=True)
        ]
        rows = math.prod(int(loop.extent) for loop in around) * (item // element) // size
        found = place(loops, item=item, size=size * element, rows=rows)
        if found is None:
            return None
        number, lines = found
        starts = {loop.loop_var: loop.min for loop in inner[number + 1 :]}
        start = self._walks.substitute(index, starts)
        return inner[number].loop_var, [
            self._ask(load, start + (_AHEAD + line * _LINE) // element) for line in range(lines)
        ]

    def _strides(self, index: Any, around: Sequence[Any]) -> list[int]:
        """Return the factors of the innermost loops, as many as ``index`` is a linear function of."""
        for outer in range(len(around)):
            factors = self._walks.linear(index, [loop.loop_var for loop in around[outer:]])
            if factors and self._are_known(factors[:-1]):
                return [int(each) for each in factors[:-1]]
        return []

    def _are_known(self, sizes: Sequence[Any]) -> bool:
        return all(isinstance(each, self._tir.IntImm) for each in sizes)

    def _uses(self, expression: Any, variable: Any) -> bool:
        return any(variable.same_as(each) for each in self._tir.analysis.undefined_vars(expression))

    def _ask(self, load: Any, index: Any) -> Any:
        return self._tir.Evaluate(self._walks.call(load, index, *_FOR_READING))

    def _bytes(self, load: Any) -> int:
        kind = self._data_type(self._walks.dtype(load))
        return int(kind.bits) * int(kind.lanes) // 8

    def _with_body(self, loop: Any, body: Any) -> Any:
        rest = (loop.thread_binding, loop.annotations)
        return self._tir.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, *rest)
