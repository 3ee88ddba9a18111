"""Prefetches of weights: cores read ahead within a page of memory only, and packed weights are read page after page.

A product of few rows uses each weight a few times and then needs the next one, so that it waits for memory. Kernels
ask for the weights that they need 8 KiB later (Callahan, Kennedy and Porterfield, ASPLOS 1991). If several tiles of
rows use the same panel of weights one after the other, each asks for its share of the next panel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.engines.runtime.compiling import Release

_AHEAD = 8 << 10
"""Bytes; 4 and 12 KiB were as good, 2 and 24 KiB worse."""
FEWEST_BYTES = 64 << 10
"""Of weights; kernels with fewer gain nothing."""
_MOST_ROWS = 1024
"""Rows of the product from which on arithmetic hides the wait."""
_MOST_PANEL_BYTES = 512 << 10
"""Of a panel: the second cache holds two of them, and activations."""
_LINE = 64
_MOST_LINES = 8
"""Cache lines an iteration; a loop that reads more is left to the core."""
_SERIAL = 0
_CPUS = ("sapphirerapids", "emeraldrapids", "graniterapids", "znver5")
"""LLVM's names of CPUs that gain; a Zen 4 gains nothing and loses up to 4 % (docs/decisions/0082-prefetches.md)."""
_FOR_READING, _FIRST_CACHE, _SECOND_CACHE, _DATA = 0, 3, 2, 1
"""Arguments of ``llvm.prefetch``: what for, into which cache, and what."""


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
    if size < FEWEST_BYTES or rows > _MOST_ROWS:
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
class Panel:
    """Weights that loops read several times in a row, before they go on to the next ones."""

    size: int
    """Bytes."""
    iterations: int
    """Of all passes."""
    loops: int
    """Number of the innermost loops, which make up all passes."""


def panel(loops: Sequence[Loop]) -> Panel | None:
    """Return the panel that nested loops read, or None if they read it once or two of it do not fit the cache."""
    size, steps, passes, count = loops[-1].stride, 1, 1, 0
    for loop in reversed(loops):
        if loop.extent > 1 and loop.stride == size and loop.sums and passes == 1:
            size, steps = size * loop.extent, steps * loop.extent
        elif loop.extent > 1 and loop.stride == 0:
            passes *= loop.extent
        elif loop.extent > 1:
            break
        count += 1
    if passes == 1 or size > _MOST_PANEL_BYTES:
        return None
    return Panel(size=size, iterations=passes * steps, loops=count)


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
    value: Callable[[Any], int | None]
    """Returns the value of an expression without variables; None if TVM cannot tell."""
    given: Callable[[Any], dict[Any, Sequence[Any]]]
    """Returns the shape of each flat buffer of a function's parameters, by what ``source`` returns for its reads."""
    source: Callable[[Any], Any | None]
    """Returns what a node reads, None if it does not read a buffer."""
    call: Callable[..., Any]
    """``call(load, index, *arguments)`` calls ``llvm.prefetch`` for another element of what ``load`` reads."""
    dtype: Callable[[Any], str]
    """Returns the dtype of a read."""


@dataclass(frozen=True, kw_only=True)
class _Step:
    node: Any
    """``For``."""
    count: Any
    """Number of the iteration."""
    loop: Loop


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
        steps = self._steps(index, element, around, store)
        uses = math.prod(int(loop.extent) for loop in around) * (item // element) // size
        loops = [each.loop for each in steps]
        found = place(loops, item=item, size=size * element, rows=uses)
        if found is None:
            return None
        number, lines = found
        index = self._at_first(index, [each.node for each in steps[number + 1 :]])
        ahead = panel(loops[: number + 1])
        if ahead:
            passes = steps[number + 1 - ahead.loops : number + 1]
            asked = [self._ask(load, each, _SECOND_CACHE) for each in self._next(index, passes, ahead, element)]
        else:
            later = [index + (_AHEAD + line * _LINE) // element for line in range(lines)]
            asked = [self._ask(load, each, _FIRST_CACHE) for each in later]
        return steps[number].node.loop_var, asked

    def _steps(self, index: Any, element: int, around: Sequence[Any], store: Any) -> list[_Step]:
        """Return the innermost loops, as many as ``index`` is a linear function of.

        Before them come the passes of a loop around them, if it is one over panels and rows.
        """
        strides = self._strides(index, around)
        steps = []
        for node, stride in strides:
            sums = int(node.kind) == _SERIAL and not self._uses(store.indices[0], node.loop_var)
            loop = Loop(extent=int(node.extent), stride=stride * element, sums=sums)
            steps.append(_Step(node=node, count=node.loop_var - node.min, loop=loop))
        outer = around[: len(around) - len(steps)]
        passes = self._passes(self._at_first(index, [node for node, _ in strides]), outer)
        if passes > 1:
            node = outer[-1]
            loop = Loop(extent=passes, stride=0, sums=False)
            steps.insert(0, _Step(node=node, count=(node.loop_var - node.min) % passes, loop=loop))
        return steps

    def _next(self, index: Any, passes: Sequence[_Step], ahead: Panel, element: int) -> list[Any]:
        """Return the indices of an iteration's share of the next panel, one for each cache line."""
        share = math.ceil(ahead.size / ahead.iterations / element)
        iteration, inner = 0, 1
        for step in reversed(passes):
            iteration = iteration + step.count * inner
            inner *= step.loop.extent
        begin = self._at_first(index, [each.node for each in passes if each.loop.sums])
        begin = begin + ahead.size // element + iteration * share
        return [begin + offset // element for offset in range(0, share * element, _LINE)]

    def _at_first(self, index: Any, loops: Sequence[Any]) -> Any:
        """Return the value of ``index`` in the first iteration of these loops."""
        return self._walks.substitute(index, {loop.loop_var: loop.min for loop in loops})

    def _passes(self, index: Any, outer: Sequence[Any]) -> int:
        """Return how many iterations of the innermost of these loops, one over panels and rows, read the same panel."""
        if not outer:
            return 1
        *others, tiles = outer
        inside = self._at_first(index, others)

        def at(tile: int) -> int | None:
            return self._walks.value(self._walks.substitute(inside, {tiles.loop_var: tiles.min + tile}))

        first, last = at(0), int(tiles.extent) - 1
        if first is None:
            return 1
        same, other = 0, 1
        while other < last and at(other) == first:
            same, other = other, min(other * 2, last)
        while other - same > 1:
            middle = (same + other) // 2
            same, other = (middle, other) if at(middle) == first else (same, middle)
        return other if other <= last and at(other) != first else 1

    def _strides(self, index: Any, around: Sequence[Any]) -> list[tuple[Any, int]]:
        """Return the innermost loops, as many as ``index`` is a linear function of, and their factors."""
        for outer in range(len(around)):
            factors = self._walks.linear(index, [loop.loop_var for loop in around[outer:]])
            if factors and self._are_known(factors[:-1]):
                return [(loop, int(each)) for loop, each in zip(around[outer:], factors[:-1], strict=True)]
        return []

    def _are_known(self, sizes: Sequence[Any]) -> bool:
        return all(isinstance(each, self._tir.IntImm) for each in sizes)

    def _uses(self, expression: Any, variable: Any) -> bool:
        return any(variable.same_as(each) for each in self._tir.analysis.undefined_vars(expression))

    def _ask(self, load: Any, index: Any, cache: int) -> Any:
        return self._tir.Evaluate(self._walks.call(load, index, _FOR_READING, cache, _DATA))

    def _bytes(self, load: Any) -> int:
        kind = self._data_type(self._walks.dtype(load))
        return int(kind.bits) * int(kind.lanes) // 8

    def _with_body(self, loop: Any, body: Any) -> Any:
        rest = (loop.thread_binding, loop.annotations)
        return self._tir.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, *rest)
