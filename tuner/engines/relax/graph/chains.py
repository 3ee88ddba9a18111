"""Depthwise convolutions, each computed with the convolution before it, for builds that may be rewritten.

An inverted bottleneck (MobileNetV2; Sandler et al., CVPR 2018) expands its input to several times as many channels, and
its depthwise convolution reads them. Here a band of lines of some of these channels is computed and read at once, while
it is in the cache. The first convolution has the second one's padding around its result, which a block named ``BORDER``
sets to zero, so that no padded copy is made.

The module contains, in this order: which convolutions are a chain; the passes that join them; the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, te, tirx

from tuner.engines.relax.graph import calls, joining, planes
from tuner.engines.relax.machines import (
    CACHE_BYTES,
    MOST_LANES,
    Machine,
    divisors,
    keep_in_registers,
    space,
    sum_in_registers,
    vector_width,
)

BORDER = "chain_border"
"""Name of the block that sets the padding to zero."""
CHAINED = "chained"
"""What the names of functions that compute a pair begin with, see ``tuner.results.in_network``."""
_NOTE = "chain_reads"
"""Annotation of that block: the lines that are read for a line of the result, and their step."""
_DTYPE = "float32"
_BETWEEN = frozenset(
    f"relax.{name}"
    for name in (
        "add", "subtract", "multiply", "divide", "maximum", "minimum", "clip", "exp", "negative", "sigmoid", "tanh",
        "erf", "nn.relu", "nn.leakyrelu", "nn.softplus",
    )
)  # fmt: skip
"""Operators that may stand between the two convolutions."""
_VECTORS = (2, 3, 1, 4)
"""Vectors of channels that are computed at a time, the best number first."""
_MOST_BYTES = CACHE_BYTES // 2
"""Of a band."""
_MOST_ADDED = 3
"""Maximum number of columns that are added for whole tiles."""
_MOST_COLUMNS = 8
"""Of a tile of the result: as fast as 14, which leave an activation behind them too few registers."""
_SAVED = 30.0
"""Time saved for each value between the two, in operations at the core's peak."""
_COPIED = 25.0
"""Time to copy a value of the first one's input, in the same unit."""
_Padding = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """Two convolutions in NHWC, of which the second one is depthwise and reads the first one's results."""

    rows: int
    columns: int
    channels: int
    """Shape of what lies between the two."""
    inputs: int
    """Channels that the first one reads."""
    depth: int
    """Multiplications of the first one for each of its results."""
    taps: int
    stride: int
    padding: _Padding
    lines: int
    """Of the second one: lines that it reads for a line of its result, their step, padding, and lines of its result."""

    def width(self, machine: Machine) -> int:
        """Return the columns of a band, padding included: the least that make whole tiles."""
        fewest = self.columns + self.padding[1] + self.padding[3]
        vectors, width = _channels(self.channels, machine)[0]
        every = range(fewest, fewest + _MOST_ADDED + 1)
        return min(every, key=lambda columns: columns / machine.tile_of(columns, vectors, width).share(machine.lanes))

    def pays(self, machine: Machine) -> bool:
        """Return whether the padded input, the padding and the lines that bands share cost less than is saved."""
        vectors, width = _channels(self.channels, machine)[0]
        columns = self.width(machine)
        lines = _lines(self.lines, self.taps, self.stride, 4 * columns * vectors * width)[0]
        computed = self.lines // lines * (lines * self.stride + self.taps - self.stride) * columns
        share = machine.tile_of(columns, vectors, width).share(machine.lanes)
        added = 2 * self.depth * (computed / (self.rows * self.columns) / share - 1)
        saved = _SAVED - _COPIED * self.inputs / self.channels
        return added < saved * machine.lanes / MOST_LANES


def _channels(channels: int, machine: Machine) -> list[tuple[int, int]]:
    """Return how many vectors of channels can be computed at a time, the best number first, and the values in each."""
    width = vector_width(channels, machine.lanes)
    return [(vectors, width) for vectors in _VECTORS if channels % (vectors * width) == 0]


def _lines(lines: int, taps: int, stride: int, line_bytes: int) -> list[int]:
    """Return how many lines of the result may be in a band, the best number first: the most that fit in the cache.

    ``line_bytes``: size of a line of what lies between.
    """
    fitting = [each for each in divisors(lines, lines) if (each * stride + taps - stride) * line_bytes <= _MOST_BYTES]
    return fitting[::-1] or [1]


def with_borders(module: Any, machine: Machine, is_filtered: Callable[[Any], bool]) -> tuple[Any, bool]:
    """Return an ``IRModule`` in which the first convolution of each pair computes the second one's padding, and whether
    there are pairs, which ``CHAINING`` joins once operators are fused.

    ``is_filtered`` returns whether a call is a convolution that filtering computes.
    """
    mutator = _Bordered(module)
    found = [
        mutator.convert(variable, function, machine, is_filtered)
        for variable, function in module.functions_items()
        if isinstance(function, relax.Function)
    ]
    return mutator.builder_.get(), any(found)


@relax.expr_functor.mutator
class _Bordered(relax.PyExprMutator):
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._first: dict[Any, _Padding] = {}
        self._second: dict[Any, _Padding] = {}

    def convert(self, variable: Any, function: Any, machine: Machine, is_filtered: Callable[[Any], bool]) -> bool:
        for first, second in _pairs(function):
            pair = _pair(first, second)
            if pair and not is_filtered(first) and pair.pays(machine):
                top, left, bottom, _ = pair.padding
                right = pair.width(machine) - pair.columns - left
                self._first[first] = self._second[second] = (top, left, bottom, right)
        if self._first:
            self.builder_.update_func(variable, self.builder_.normalize(self.visit_expr(function)))
        return bool(self._first)

    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        if call in self._first:
            strides = [int(each) for each in call.attrs.strides] * 2
            added = [each * stride for each, stride in zip(self._first[call], strides, strict=True)]
            own = [int(each) for each in call.attrs.padding]
            return _padded(visited, visited.args[0], [mine + each for mine, each in zip(own, added, strict=True)])
        if call in self._second:
            note = [int(call.args[1].ty.shape.values[0]), int(call.attrs.strides[0])]
            image = self.builder_.call_te(
                _bordered, visited.args[0], self._second[call], note, primfunc_name_hint=BORDER
            )
            made = self.builder_.emit(_padded(visited, self.builder_.emit(image), [0] * 4))
            # Columns that were added to have whole tiles are not computed, as nothing reads them.
            columns = int(call.ty.shape.values[2])
            return relax.op.strided_slice(made, axes=[2], begin=[0], end=[columns])
        return visited


def _padded(call: Any, data: Any, padding: list[int]) -> Any:
    """Return a convolution of ``data`` with other padding."""
    attrs = call.attrs
    return relax.op.nn.conv2d(
        data, call.args[1], attrs.strides, padding, groups=int(attrs.groups),
        data_layout=attrs.data_layout, kernel_layout=attrs.kernel_layout, out_layout=attrs.out_layout,
    )  # fmt: skip


def _bordered(data: Any, padding: _Padding, note: list[int]) -> Any:
    """Return the tensor with zeros in its border, and ``note``, the taps and the stride with which it is read."""
    (_, rows, columns, _), (top, left, bottom, right) = data.shape, padding

    def value(n: Any, y: Any, x: Any, c: Any) -> Any:
        inside = tirx.all(y >= top, y < rows - bottom, x >= left, x < columns - right)
        return tirx.Select(inside, data[n, y, x, c], tirx.const(0.0, _DTYPE))

    return te.compute(data.shape, value, name=BORDER, attrs={_NOTE: note})


def _pairs(function: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the calls of convolutions and of the next ones, between which there is nothing but what both share."""
    values = {each.var: each.value for each in calls.bindings(function)}
    users: dict[Any, list[Any]] = {}
    for variable, value in [*values.items(), (None, function.body.body)]:
        relax.analysis.post_order_visit(value, lambda used, variable=variable: _note(users, used, variable))
    for variable, second in values.items():
        if calls.operator(second) != calls.CONVOLUTION or second.args[0] not in values:
            continue
        first, between = _first(second.args[0], values)
        kept = {variable, *between}
        if first is not None and all(user in kept for each in between for user in users[each]):
            yield first, second


def _note(users: dict[Any, list[Any]], used: Any, user: Any) -> None:
    if isinstance(used, relax.Var):
        users.setdefault(used, []).append(user)


def _first(variable: Any, values: calls.Bindings) -> tuple[Any | None, set[Any]]:
    """Return the only convolution that a variable is computed from by ``_BETWEEN``, and all variables on the way."""
    found, seen, left = [], set(), [variable]
    while left:
        each = left.pop()
        if each in seen:
            continue
        seen.add(each)
        value: Any = values.get(each)
        name = calls.operator(value)
        if name == calls.CONVOLUTION:
            found.append(value)
        elif name in _BETWEEN and calls.sizes(value) == calls.sizes(variable):
            tensors = [part for part in value.args if isinstance(part, relax.Var | tvm.ir.GenericConst)]
            if any(isinstance(part, tvm.ir.GenericConst) and not _is_of_channels(part) for part in tensors):
                return None, seen
            left += [part for part in tensors if isinstance(part, relax.Var)]
        else:
            return None, seen
    return (found[0] if len(found) == 1 else None), seen


def _is_of_channels(constant: Any) -> bool:
    """Return whether a constant is the same for all rows and columns."""
    return math.prod(constant.value.shape[:-1]) == 1


def _pair(first: Any, second: Any) -> _Pair | None:
    """Return the pair of two convolutions; None if the schedule does not support it."""
    is_first = calls.is_image_convolution(first) or calls.is_image_convolution(first, layout="NCHW")
    if not is_first or not calls.is_image_convolution(second) or int(first.attrs.groups) != 1:
        return None
    image, made = calls.sizes(first), calls.sizes(second)
    if image is None or made is None:
        return None
    _, rows, columns, channels = image
    if not int(second.attrs.groups) == channels == made[-1]:
        return None
    taps, across, *_ = map(int, second.args[1].ty.shape.values)
    *_, inputs, _ = kernel = list(map(int, first.args[1].ty.shape.values))
    stride, other = map(int, second.attrs.strides)
    if taps * across == 1 or stride != other:
        return None
    top, left, bottom, right = map(int, second.attrs.padding)
    return _Pair(
        rows=rows, columns=columns, channels=channels, inputs=inputs, depth=math.prod(kernel[:-1]),
        taps=taps, stride=stride, padding=(top, left, bottom, right), lines=made[1],
    )  # fmt: skip


def _chain(module: Any) -> Any:
    """Return an ``IRModule`` of fused tensor functions in which one function computes both convolutions of a pair."""
    found: dict[Any, joining.Steps] = {}
    for _, function in module.functions_items():
        bindings = calls.bindings(function) if isinstance(function, relax.Function) else []
        firsts = {
            each.var: each.value
            for each in bindings
            if joining.is_call(each.value) and BORDER in module[each.value.args[0]].script()
        }
        for value in (each.value for each in bindings if joining.is_call(each.value)):
            places = [place for place, each in enumerate(value.args[1].fields) if each in firsts]
            if places:
                found[value] = [(firsts[value.args[1].fields[places[0]]], None), (value, places[0])]
    return joining.join(module, found, _name)


def _name(steps: joining.Steps) -> str:
    operators = (str(call.args[0].name_hint).removeprefix("fused_") for call, _ in steps)
    return f"{CHAINED}_{'_'.join(operators)}".replace(f"_{BORDER}", "")


CHAINING = tvm.transform.module_pass(lambda module, _context: _chain(module), opt_level=0, name="ChainPairs")


def apply(schedule: Any, machine: Machine) -> Any:
    """Schedule a function that computes a pair. Raises ScheduleError for others."""
    steps = _Steps(schedule, machine)
    return steps.apply(*steps.sizes()[0])


def ways(module: Any, machine: Machine) -> Any | None:
    """Return MetaSchedule's space of such a function, some bands and numbers of channels; None for others."""
    if BORDER not in module.script():
        return None
    return space(lambda schedule: _Steps(schedule, machine))


class _Steps:
    """The steps of a function that computes a pair, and their schedule."""

    def __init__(self, schedule: Any, machine: Machine) -> None:
        self._schedule, self._machine = schedule, machine
        self._border = schedule.get_sblock(BORDER)
        self._first, self._second = (each for each in self._blocks() if self._is_sum(each))

    def _blocks(self) -> list[Any]:
        return list(self._schedule.get_child_blocks(self._schedule.get_sblock("root")))

    def _is_sum(self, block: Any) -> bool:
        return any(each.iter_type == tirx.IterVar.CommReduce for each in self._schedule.get(block).iter_vars)

    def _shape(self, block: Any) -> list[int]:
        return [int(size) for size in self._schedule.get(block).writes[0].source.shape]

    def sizes(self) -> list[tuple[int, int]]:
        """Return lines in a band and vectors of channels, the best by estimate first."""
        *_, columns, channels = self._shape(self._border)
        # The padded input serves all parts of a band, so that they are one task.
        is_padded = any(self._is_padding(block) for block in self._blocks())
        found = [
            (place, at, lines, vectors)
            for at, (vectors, width) in enumerate(_channels(channels, self._machine))
            for place, lines in enumerate(
                self._bands(1 if is_padded else channels // (vectors * width), 4 * columns * vectors * width)
            )
        ]
        return [each[2:] for each in sorted(found)]

    def _bands(self, parts: int, line_bytes: int) -> list[int]:
        """Return how many lines may be in a band of so many tasks, the best number first."""
        taps, stride = (int(each) for each in self._schedule.get(self._border).annotations[_NOTE])
        batch, most, *_ = self._shape(self._second)

        def time(lines: int) -> float:
            return self._machine.idle(batch * most // lines * parts) * (1 + (taps - stride) / (lines * stride))

        return sorted(_lines(most, taps, stride, line_bytes), key=time)

    def _is_padding(self, block: Any) -> bool:
        """Return whether a block pads the first convolution's input."""
        statement = self._schedule.get(block)
        return statement.name_hint != BORDER and "if_then_else" in statement.body.script()

    def apply(self, lines: int, vectors: int) -> Any:
        """Schedule bands of so many lines of the result and so many vectors of channels."""
        schedule = self._schedule
        padded, last = self._inline()
        *_, columns, channels = self._shape(last)
        width = vector_width(channels, self._machine.lanes)
        n, y, x, c = schedule.get_loops(last)
        band, y = schedule.split(y, [None, lines])
        part, vector, lane = schedule.split(c, [None, vectors, width])
        x, column = schedule.split(x, [None, divisors(columns, _MOST_COLUMNS)[-1]])
        schedule.reorder(n, band, part, y, vector, x, column, lane)
        tasks = schedule.fuse(n, band) if padded else schedule.fuse(n, band, part)
        if self._machine.threads > 1:
            schedule.parallel(tasks)
        keep_in_registers(schedule, column, lane)
        sum_in_registers(schedule, self._second, x, width)
        schedule.compute_at(self._border, part if padded else tasks, preserve_unit_loops=True)
        *_, y, x, c = schedule.get_loops(self._border)
        x, column = schedule.split(x, [None, self._machine.tile_of(self._shape(self._border)[2], vectors, width).rows])
        vector, lane = schedule.split(c, [None, width])
        schedule.reorder(y, x, column, vector, lane)
        keep_in_registers(schedule, column, vector, lane)
        sum_in_registers(schedule, self._first, x, width)
        for each in padded:
            schedule.compute_at(each, tasks, preserve_unit_loops=True)
            if schedule.get(each).name_hint == planes.PADDED:
                # Its last axis is the padded one, which LLVM vectorizes without a test for each number.
                continue
            lanes = vector_width(self._shape(each)[-1], self._machine.lanes)
            schedule.vectorize(schedule.split(schedule.get_loops(each)[-1], [None, lanes])[1])
        return schedule

    def _inline(self) -> tuple[list[Any], Any]:
        """Inline all steps but sums, the padded input of the first one, if there is one, and the last block."""
        schedule = self._schedule
        padded = []
        for block in self._blocks():
            name, consumers = schedule.get(block).name_hint, schedule.get_consumers(block)
            if name == BORDER or self._is_sum(block) or not consumers:
                continue
            if self._is_padding(block):
                padded.append(block)
            else:
                schedule.compute_inline(block)
        last = self._blocks()[-1]
        return padded, schedule.cache_write(self._second, 0, "local") if self._is_sum(last) else last
