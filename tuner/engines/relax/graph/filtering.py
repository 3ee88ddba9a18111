"""Convolutions by minimal filtering (``runtime.filtering``), for builds that may be rewritten.

A band of tiles passes through all steps while it is in the cache: transformed inputs, one matrix product per point,
transformed outputs and the operators that follow the convolution. Weights are transformed when the model is lowered.

The module contains, in this order: tile sizes and what they cost; the steps as tensor expressions; their schedules; the
legalization of Relax's convolutions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tuner.engines.relax.graph import calls
from tuner.engines.relax.machines import CACHE_BYTES, Machine, Tile, divisors, keep_in_registers, space, vector_width
from tuner.engines.runtime.filtering import Filtering, along, multiple, pick

_OUTPUTS = {2: (5, 3), 3: (4, 2), 5: (4, 2)}
"""Outputs of a tile along an axis, by taps: as many as there are points for (``runtime.filtering``)."""
_FEWEST_CHANNELS, _FEWEST_OF_GROUP = 8, 24
"""Channels that a filter reads: in narrow groups, sums are stored too often for what they add up."""
_MOST_VECTORS = 4
_MOST_TILES = 64
"""Maximum number of tiles in a band of these."""
_MOVED = 20.0
"""Time to transform an element, in operations at the core's peak: 0.08 ns at 265 GFLOPS (Zen 5)."""
_PADDED = 8.0
"""Time to copy an element of the input, in the same unit."""
_READ = 9.0
"""Time to read a byte of weights from memory, in the same unit: 30 GB/s."""
_READ_AGAIN = 1.0
"""Time to read a byte of weights again, which are in a cache that cores share."""
_STORED = 2.0
"""Time to begin and store a sum, in multiplications."""
_WORTH = 0.95
"""Time, relative to the direct convolution's, below which filtering is used."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A convolution in NHWC, or one along lines, which are its rows here."""

    batch: int
    height: int
    width: int
    channels: int
    filters: int
    groups: int
    taps: tuple[int, int]
    top: int
    left: int
    rows: int
    columns: int
    """Height and width of the output."""
    is_line: bool
    """Whether the first axis of the image is the tensor's third."""

    @property
    def depth(self) -> int:
        """Channels that a filter reads."""
        return self.channels // self.groups

    def widths(self, machine: Machine) -> set[int]:
        """Return the possible numbers of filters in a vector; filters of a single group may be padded to whole ones."""
        exact = vector_width(self.filters // self.groups, machine.lanes)
        return {exact} if self.groups > 1 else {exact, machine.lanes}

    def direct(self, machine: Machine) -> float:
        """Return the time of the direct convolution, in operations at the core's peak."""
        across, filters = self.rows if self.is_line else self.columns, self.filters // self.groups
        columns = machine.whole(across, filters)
        weights = math.prod(self.taps) * self.depth * columns * self.groups
        operations = 2.0 * self.batch * self.rows * self.columns * weights
        return operations / machine.tile(across, columns).share(machine.lanes) + _READ * 4 * weights


@dataclass(frozen=True, kw_only=True)
class Tiling:
    outputs: int
    """Of a tile, along each axis with more than one tap."""
    vectors: int
    width: int
    """Filters whose weights lie side by side: vectors, and values in each."""
    block: int
    """Rows of tiles in a band."""
    registers: int
    """Tiles whose sums are in registers, a divisor of a band's tiles."""

    @property
    def panel(self) -> int:
        return self.vectors * self.width

    def along(self, shape: Shape) -> tuple[Filtering, Filtering]:
        """Return the filtering down and across."""
        down, across = (along(self.outputs, taps) for taps in shape.taps)
        return down, across

    def filters(self, shape: Shape) -> int:
        """Return the number of filters, padded to whole panels."""
        return multiple(shape.filters, self.panel)

    def rows(self, shape: Shape) -> int:
        """Return the rows of tiles in an image: whole bands."""
        return multiple(math.ceil(shape.rows / self.along(shape)[0].outputs), self.block)

    def columns(self, shape: Shape) -> int:
        """Return the columns of tiles."""
        return math.ceil(shape.columns / self.along(shape)[1].outputs)

    def cost(self, shape: Shape, machine: Machine) -> float:
        """Return the time on one of the machine's threads, in operations at the core's peak."""
        down, across = self.along(shape)
        points, bands = down.points * across.points, shape.batch * self.rows(shape) // self.block
        columns = self.columns(shape)
        tiles = bands * self.block * columns
        speed = Tile(rows=self.registers, vectors=self.vectors, width=self.width).share(machine.lanes)
        # Sums are begun and stored once for each point.
        products = 2.0 * points * tiles * (shape.depth + _STORED) * self.filters(shape)
        moved_lanes = sum(each * _lanes_lost(each, machine) for each in (shape.channels, shape.filters))
        moved = _MOVED * points * tiles * moved_lanes
        lines = self.block * down.outputs + down.taps - 1
        padded = _PADDED * bands * lines * (columns * across.outputs + across.taps - 1) * shape.channels
        weights = 4.0 * points * shape.depth * self.filters(shape)
        again = _READ_AGAIN * weights * (bands - 1) if weights > CACHE_BYTES else 0.0
        held = 4 * points * self.block * columns * (shape.channels + self.panel)
        spilled = max(1.0, held / (2 * CACHE_BYTES)) ** 0.5
        return ((products / speed + moved * spilled + padded) * machine.idle(bands) + again) + _READ * weights


def _lanes_lost(channels: int, machine: Machine) -> float:
    return machine.lanes / vector_width(channels, machine.lanes)


def tilings(shape: Shape, machine: Machine) -> list[Tiling]:
    """Return tilings, the quickest first."""
    found = [each for outputs in _OUTPUTS[max(shape.taps)] for each in _tilings(shape, machine, outputs)]
    return sorted(found, key=lambda each: each.cost(shape, machine))


def _tilings(shape: Shape, machine: Machine, outputs: int) -> Iterator[Tiling]:
    down, across = (along(outputs, taps) for taps in shape.taps)
    rows, columns = math.ceil(shape.rows / down.outputs), math.ceil(shape.columns / across.outputs)
    filters = shape.filters // shape.groups
    for vectors, width in itertools.product(range(1, _MOST_VECTORS + 1), shape.widths(machine)):
        if filters % (vectors * width) and shape.groups > 1:
            continue
        for block in {math.ceil(rows / bands) for bands in range(1, rows + 1)}:
            for registers in divisors(block * columns, machine.rows(vectors)):
                yield Tiling(outputs=outputs, vectors=vectors, width=width, block=block, registers=registers)


_DTYPE = "float32"
_PRODUCTS = "filtered_products"
_NOTE = "filtered_tiling"
"""Annotation of the products, what no shape tells: block, registers, width and columns, and whether it is a line."""
_pick = partial(pick, tirx.Select)


def convolution(data: Any, kernel: Any, shape: Shape, tiling: Tiling) -> Any:
    """Return the tensor (batch, height, width, filters) of an image and ``weights``."""
    down, across = tiling.along(shape)
    panel, rows, columns = tiling.panel, tiling.rows(shape), tiling.columns(shape)
    tiles, panels = shape.batch * rows * columns, tiling.filters(shape) // panel
    high, wide = rows * down.outputs + down.taps - 1, columns * across.outputs + across.taps - 1

    def padded(n: Any, h: Any, w: Any, c: Any) -> Any:
        y, x = h - shape.top, w - shape.left
        inside = tirx.all(y >= 0, y < shape.height, x >= 0, x < shape.width)
        value = data[n, x, y, c] if shape.is_line else data[n, y, x, c]
        return tirx.if_then_else(inside, value, tirx.const(0.0, _DTYPE))

    pad = te.compute((shape.batch, high, wide, shape.channels), padded, name="filtered_pad")

    def entered_rows(p: Any, e: Any, x: Any, c: Any) -> Any:
        image, row, column = p // (rows * columns), p // columns % rows, p % columns
        top, left = row * down.outputs, column * across.outputs
        return _pick(e, down.enter(lambda y: pad[image, top + y, left + x, c]))

    entering = te.compute((tiles, down.points, across.points, shape.channels), entered_rows, name="filtered_input_rows")
    entered = te.compute(
        (down.points, across.points, tiles, shape.channels),
        lambda e, u, p, c: _pick(u, across.enter(lambda x: entering[p, e, x, c])),
        name="filtered_input",
    )
    channel = te.reduce_axis((0, shape.depth), "channel")

    def product(o: Any, e: Any, u: Any, p: Any, c: Any) -> Any:
        first = o // (panels // shape.groups) * shape.depth
        return te.sum(entered[e, u, p, first + channel] * kernel[o, e, u, channel, c], axis=[channel])

    products = te.compute(
        (panels, down.points, across.points, tiles, panel),
        product,
        name=_PRODUCTS,
        attrs={_NOTE: [tiling.block, tiling.registers, tiling.width, columns, int(shape.is_line)]},
    )
    leaving = te.compute(
        (panels, tiles, down.outputs, across.points, panel),
        lambda o, p, v, u, c: _pick(v, down.leave(lambda e: products[o, e, u, p, c])),
        name="filtered_output_rows",
    )
    left = te.compute(
        (panels, tiles, down.outputs, across.outputs, panel),
        lambda o, p, v, x, c: _pick(x, across.leave(lambda u: leaving[o, p, v, u, c])),
        name="filtered_output",
    )

    def output(n: Any, h: Any, w: Any, c: Any) -> Any:
        y, x = (w, h) if shape.is_line else (h, w)
        tile = (n * rows + y // down.outputs) * columns + x // across.outputs
        return left[c // panel, tile, y % down.outputs, x % across.outputs, c % panel]

    image = (shape.columns, shape.rows) if shape.is_line else (shape.rows, shape.columns)
    return te.compute((shape.batch, *image, shape.filters), output, name="filtered")


def weights(kernel: Any, shape: Shape, tiling: Tiling) -> Any:
    """Transform weights (taps, taps, depth, out) to float32 (out / panel, points, points, depth, panel).

    The weights of padding filters are 0.
    """
    down, across = tiling.along(shape)
    values = np.einsum("ea,ub,abio->euio", down.kernel, across.kernel, kernel.astype("float64"))
    added = np.pad(values, [(0, 0)] * 3 + [(0, tiling.filters(shape) - shape.filters)])
    blocked = added.reshape(*values.shape[:3], -1, tiling.panel)
    return np.ascontiguousarray(blocked.transpose(3, 0, 1, 2, 4)).astype(_DTYPE)


def apply(schedule: Any, machine: Machine) -> Any:
    """Schedule a function that begins with ``convolution``. Raises ScheduleError for others."""
    steps = _Steps(schedule, machine)
    return steps.apply(steps.block, steps.registers)


def ways(module: Any, machine: Machine) -> Any | None:
    """Return MetaSchedule's space of such a function, some bands and numbers of registers; None for others."""
    if _NOTE not in module.script():
        return None
    return space(lambda schedule: _Steps(schedule, machine))


class _Steps:
    """The steps of one function, and their schedule."""

    def __init__(self, schedule: Any, machine: Machine) -> None:
        self._schedule, self._machine = schedule, machine
        names = ("_pad", "_input_rows", "_input", "_products", "_output_rows", "_output", "")
        blocks = [schedule.get_sblock(f"filtered{name}") for name in names]
        self._pad, self._entering, self._entered, self._products, self._leaving, self._left, self._output = blocks
        own = {schedule.get(block).name_hint for block in blocks}
        every = schedule.get_child_blocks(schedule.get_sblock("root"))
        self._behind = [block for block in every if schedule.get(block).name_hint not in own]
        note = [int(each) for each in schedule.get(self._products).annotations[_NOTE]]
        self.block, self.registers, self._width, self._columns, self._is_line = note
        *_, self._tiles, self._panel = self._shape(self._products)
        _, _, self._down, self._across, _ = self._shape(self._left)

    def sizes(self) -> list[tuple[int, int]]:
        """Return rows of tiles in a band and tiles in registers, of bands that make up the image; large bands first."""
        batch, *image, _ = self._shape(self._output)
        rows, needed = self._tiles // batch // self._columns, math.ceil(image[self._is_line] / self._down)
        most = self._machine.rows(self._panel // self._width)
        found = []
        for block in reversed(divisors(rows, _MOST_TILES // self._columns)):
            if multiple(needed, block) == rows:
                registers = divisors(block * self._columns, most)[-2:]
                found += [(block, each) for each in reversed(registers)]
        return found

    def _shape(self, block: Any) -> list[int]:
        return [int(size) for size in self._schedule.get(block).writes[0].source.shape]

    def apply(self, block: int, registers: int) -> Any:
        """Schedule bands of so many rows of tiles, and so many tiles in registers."""
        bands, panels = self._leave(block)
        self._multiply(panels, registers)
        self._enter(bands)
        return self._schedule

    def _leave(self, block: int) -> tuple[Any, Any]:
        """Return the loop over bands of tiles, and the one over panels of filters."""
        schedule = self._schedule
        last, steps = self._output, [self._left, self._leaving]
        if self._behind:
            *between, last = self._behind
            for each in between:
                schedule.compute_inline(each)
            steps.insert(0, self._output)
        # Padding filters are not stored.
        width = vector_width(math.gcd(self._panel, self._shape(last)[-1]), self._machine.lanes)
        n, y, x, c = self._image(schedule.get_loops(last))
        outer, y = schedule.split(y, [None, block * self._down])
        row, v = schedule.split(y, [None, self._down])
        column, x = schedule.split(x, [None, self._across])
        panel, vector, lane = schedule.split(c, [None, self._panel // width, width])
        schedule.reorder(n, outer, panel, row, column, vector, v, x, lane)
        bands = schedule.fuse(n, outer)
        if self._machine.threads > 1:
            schedule.parallel(bands)
        keep_in_registers(schedule, v, x, lane)
        for step in steps:
            schedule.set_scope(step, 0, "local")
            schedule.compute_at(step, v, preserve_unit_loops=True)
            keep_in_registers(schedule, *schedule.get_loops(step)[-3:])
        return bands, panel

    def _multiply(self, panels: Any, registers: int) -> None:
        schedule = self._schedule
        schedule.compute_at(self._products, panels, preserve_unit_loops=True)
        stored = schedule.cache_write(self._products, 0, "local")
        *_, e, u, tile, c, channel = schedule.get_loops(self._products)
        outer, tile = schedule.split(tile, [None, registers])
        vector, lane = schedule.split(c, [None, self._width])
        schedule.reorder(e, u, outer, channel, tile, vector, lane)
        schedule.reverse_compute_at(stored, outer, preserve_unit_loops=True)
        keep_in_registers(schedule, tile, vector, lane)
        *_, tile, c = schedule.get_loops(stored)
        keep_in_registers(schedule, tile, *schedule.split(c, [None, self._width]))
        start = schedule.decompose_reduction(self._products, channel)
        keep_in_registers(schedule, *schedule.get_loops(start)[-3:])

    def _enter(self, bands: Any) -> None:
        schedule = self._schedule
        lanes = vector_width(self._shape(self._entered)[-1], self._machine.lanes)
        schedule.compute_at(self._entered, bands, preserve_unit_loops=True)
        *_, e, u, tile, c = schedule.get_loops(self._entered)
        c, lane = schedule.split(c, [None, lanes])
        schedule.reorder(tile, c, e, u, lane)
        keep_in_registers(schedule, e, u, lane)
        schedule.set_scope(self._entering, 0, "local")
        # One row of points at a time fits in the registers.
        schedule.compute_at(self._entering, e, preserve_unit_loops=True)
        keep_in_registers(schedule, *schedule.get_loops(self._entering)[-3:])
        schedule.compute_at(self._pad, bands, preserve_unit_loops=True)
        schedule.vectorize(schedule.split(schedule.get_loops(self._pad)[-1], [None, lanes])[1])

    def _image(self, loops: list[Any]) -> list[Any]:
        """Return the loops over the batch, rows, columns and filters."""
        n, y, x, c = loops
        return [n, x, y, c] if self._is_line else [n, y, x, c]


def computing(machine: Machine) -> Callable[[Any, Any], Any | None]:
    """Return a function for ``calls.legalized``, which computes convolutions that filtering makes quicker."""

    def filtered(builder: Any, call: Any) -> Any | None:
        shape = _shape(call)
        tiling = _worth(shape, machine) if shape else None
        if shape is None or tiling is None:
            return None
        kernel = call.args[1].value.numpy()
        transformed = weights(kernel.swapaxes(0, 1) if shape.is_line else kernel, shape, tiling)
        return builder.call_te(
            lambda data, values: convolution(data, values, shape, tiling),
            call.args[0],
            relax.const(transformed),
            primfunc_name_hint="filtered_conv2d",
            primfunc_attrs={"op_pattern": calls.FUSES_ELEMENTWISE},
        )

    return filtered


def pays(call: Any, machine: Machine, *, speed: float = 1.0) -> bool:
    """Return whether a call is a convolution that filtering computes faster than the direct algorithm.

    ``speed``: throughput of direct convolutions without groups, relative to float32.
    """
    shape = _shape(call)
    return shape is not None and _worth(shape, machine, speed if shape.groups == 1 else 1.0) is not None


@lru_cache(maxsize=256)
def _worth(shape: Shape, machine: Machine, speed: float = 1.0) -> Tiling | None:
    """Return the fastest tiling by estimate, or None if the direct convolution is about as fast."""
    tiling = tilings(shape, machine)[0]
    return tiling if tiling.cost(shape, machine) * speed < _WORTH * shape.direct(machine) else None


def _shape(call: Any) -> Shape | None:
    """Return the shape of a convolution that can be filtered, or None for any other call."""
    if not calls.is_image_convolution(call) or any(int(each) != 1 for each in call.attrs.strides):
        return None
    (data, kernel), attrs = call.args, call.attrs
    image, made = calls.sizes(data), calls.sizes(call)
    if image is None or made is None or not all(made):
        return None
    (batch, height, width, channels), (_, rows, columns, filters) = image, made
    down, across = (int(size) for size in kernel.ty.shape.values[:2])
    top, left = (int(size) for size in attrs.padding[:2])
    groups = int(attrs.groups)
    fewest = _FEWEST_OF_GROUP if groups > 1 else _FEWEST_CHANNELS
    outputs = {_OUTPUTS.get(taps) for taps in (down, across) if taps > 1}
    if len(outputs) != 1 or None in outputs or channels // groups < fewest:
        return None
    is_line = height == 1 == down
    if is_line:
        height, width, rows, columns, top, left, down, across = width, height, columns, rows, left, top, across, down
    return Shape(
        batch=batch, height=height, width=width, channels=channels, filters=filters, groups=groups, taps=(down, across),
        top=top, left=left, rows=rows, columns=columns, is_line=is_line,
    )  # fmt: skip
