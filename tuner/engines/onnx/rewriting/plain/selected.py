"""Selections of as many rows as a mask says, up to ``NonMaxSuppression``, made of fixed size.

Detectors keep the boxes whose scores exceed a threshold (``NonZero``), perhaps of these the best (``TopK`` of a number
that is computed, in ``torchvision.models.detection``), and of these what ``NonMaxSuppression`` chooses. No engine
imports what lies between. Here all rows are kept, or the best of all. ``NonMaxSuppression`` leaves out those that the
mask does not have: their scores are minus infinity. The others keep their order, so the same are chosen; a row that
itself has that score never is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import onnx

from tuner.engines.onnx import models, ordering
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import OLDEST_OPSET, Declined, Emitter, Replacement
from tuner.engines.runtime import importing

OPERATORS = frozenset({"NonZero"})
_COMPARED = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_BY_ELEMENT = (*graphs.ELEMENTWISE, *_COMPARED, "And", "Cast", "Mod", "Not", "Or", "Where", "Xor")
_TURNED = {"row": "column", "column": "row"}
_BOXES = 2
"""Column of what ``NonMaxSuppression`` returns that has the places of boxes."""
_LEAST_SCORE = 4
"""Its input with the score that a box must exceed."""


@dataclass(frozen=True, kw_only=True)
class _Mask:
    """Which of ``size`` rows are kept; ``scores`` if these are what exceeds a threshold."""

    name: str
    size: int
    scores: str | None


@dataclass(frozen=True, kw_only=True)
class _Places:
    """Where a mask is true: by ``NonZero`` [1, n], transposed [n, 1], or [n]."""

    mask: _Mask
    form: str


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """A tensor that has rows of fixed number along ``axis``, where it had as many as were selected.

    ``parts`` are what rows lie one behind the other: those of a mask, by its name, or of a ``TopK``, by the places that
    it returns. ``mask`` is set if the values are such places, and ``data`` if these are all rows of a tensor.
    """

    parts: tuple[str, ...]
    axis: int
    rank: int
    mask: _Mask | None = None
    data: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Places of rows that ``NonMaxSuppression`` chose; ``is_table`` if it is the output [m, 3] itself."""

    parts: tuple[str, ...]
    is_table: bool = False


@dataclass(frozen=True, kw_only=True)
class _Count:
    """How many rows were selected."""

    parts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """Sizes of a tensor, or some of them. None stands for a number that does not depend on what was selected."""

    items: tuple[_Count | int | None, ...]


@dataclass(frozen=True, kw_only=True)
class _Limited:
    """The least of a constant and of a number of rows: how many ``TopK`` takes."""

    parts: tuple[str, ...]
    most: int


@dataclass(frozen=True, kw_only=True)
class _Nothing:
    """Whether there are no rows; ``is_product`` if it is still the product of sizes, which is then 0."""

    parts: tuple[str, ...]
    is_product: bool


_Form = _Places | _Rows | _Chosen | _Sizes | _Limited | _Nothing


class _UnknownUse(Exception):
    """An operator reads what depends on a selection, and may do so other than row by row."""


class _BranchFound(Exception):
    """An ``If`` asks whether anything was selected."""

    def __init__(self, node: onnx.NodeProto, parts: tuple[str, ...]) -> None:
        self.outputs = dict.fromkeys(node.output, parts)


def apply(model: onnx.ModelProto) -> int:
    """Make selections of fixed size and return their number; if any must stay, 0, and the model may be changed."""
    if models.opset(model) < OLDEST_OPSET or not _may_apply(model.graph):
        return 0
    taken: dict[str, tuple[str, ...]] = {}
    while True:
        try:
            return _Selections(model).run(taken)
        except _BranchFound as found:
            # Only in the graph itself has what is in the branch a shape.
            _take(model, next(iter(found.outputs)))
            taken |= found.outputs
        except _UnknownUse:
            return 0


def _take(model: onnx.ModelProto, output: str) -> None:
    """Replace an ``If`` by its branch for selections that are not empty."""
    emitter = Emitter(model)

    def inline(node: onnx.NodeProto) -> None:
        made = emitter.inline(graphs.attribute(node, "else_branch"), {})
        for name, given in zip(made, node.output, strict=True):
            emitter.emit("Identity", [name], given)

    emitter.replace(lambda node: inline if output in node.output else None)
    graphs.lift_constants(model)


def _may_apply(graph: onnx.GraphProto) -> bool:
    return {"NonZero", "NonMaxSuppression"} <= {node.op_type for node in importing.every_node(graph.node)}


class _Selections:
    """A walk that follows everything whose size depends on a threshold to what ``NonMaxSuppression`` chooses of it."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._e = Emitter(model)
        self._graph = model.graph
        self._makers = {name: node for node in model.graph.node for name in node.output}
        self._forms: dict[str, _Form] = {}
        self._masks: dict[str, _Mask] = {}
        self._kept: dict[tuple[str, ...], str] = {}
        """Which rows the masks keep, by ``_Rows.parts``."""

    def run(self, taken: Mapping[str, tuple[str, ...]]) -> int:
        """Return how many selections were made of fixed size.

        ``taken`` has the results of branches that were for selections that are not empty. They must be what
        ``NonMaxSuppression`` chose of these: of empty ones it chooses nothing, as the other branches had it.

        Raises _BranchFound, if nothing was changed, or _UnknownUse.
        """
        self._e.replace(self._find)
        results = {name: self._forms.get(name) for name in taken}
        if any(not isinstance(form, _Chosen) or form.parts != taken[name] for name, form in results.items()):
            raise _UnknownUse
        if not self._forms.keys().isdisjoint(each.name for each in self._graph.output):
            raise _UnknownUse
        return len(self._masks)

    def _find(self, node: onnx.NodeProto) -> Replacement | None:
        if self._forms.keys().isdisjoint(ordering.read_by(node)):
            return self._start if node.op_type == "NonZero" else None
        method = _METHODS.get(node.op_type) if node.domain in models.STANDARD_DOMAINS else None
        if method is None:
            raise _UnknownUse
        return cast(Replacement, getattr(self, method))

    def _keep(self, node: onnx.NodeProto, form: _Form | None) -> None:
        """Emit a node as it is."""
        self._e.append(node)
        if form is not None:
            self._forms.update(dict.fromkeys(node.output, form))

    def _start(self, node: onnx.NodeProto) -> None:
        [name] = node.input
        shape, maker = self._e.shapes.get(name), self._makers.get(name)
        if shape is None or len(shape) != 1:
            raise Declined
        limit = self._e.value(maker.input[1]) if maker is not None and maker.op_type == "Greater" else None
        is_above = maker is not None and limit is not None and limit.size == 1 and np.isfinite(limit).all()
        mask = _Mask(name=name, size=shape[0], scores=maker.input[0] if maker is not None and is_above else None)
        self._masks[name], self._kept[name,] = mask, name
        self._keep(node, _Places(mask=mask, form="row"))

    def _transpose(self, node: onnx.NodeProto) -> None:
        form = self._forms[node.input[0]]
        if isinstance(form, _Places) and form.form in _TURNED:
            self._keep(node, replace(form, form=_TURNED[form.form]))
        else:
            raise _UnknownUse

    def _gather_nd(self, node: onnx.NodeProto) -> None:
        data, form = (self._forms.get(name) for name in node.input)
        if form is None and isinstance(data, _Chosen) and not data.is_table:
            self._keep(node, data)
            return
        if not isinstance(form, _Places) or form.form != "column" or graphs.attribute(node, "batch_dims", 0):
            raise _UnknownUse
        self._take_all(node, form.mask)

    def _take_all(self, node: onnx.NodeProto, mask: _Mask) -> None:
        """Emit all rows of what a mask selects from."""
        data = node.input[0]
        shape = self._e.shapes.get(data)
        if data in self._forms or shape is None or shape[0] != mask.size:
            raise _UnknownUse
        self._e.emit("Identity", [data], node.output[0])
        self._forms[node.output[0]] = _Rows(parts=(mask.name,), axis=0, rank=len(shape), data=data)

    def _gather(self, node: onnx.NodeProto) -> None:
        data, places = (self._forms.get(name) for name in node.input)
        axis = graphs.attribute(node, "axis", 0)
        if isinstance(places, _Rows):
            self._gather_rows(node, data, places, axis)
        elif isinstance(places, _Chosen) and not places.is_table and isinstance(data, _Rows):
            if data.parts != places.parts or axis % data.rank != data.axis:
                raise _UnknownUse
            self._keep(node, None)
        elif isinstance(places, _Places) and places.form == "flat" and axis == 0:
            self._take_all(node, places.mask)
        elif places is None and isinstance(data, _Chosen) and not data.is_table:
            self._keep(node, data)
        elif places is None:
            self._gather_fixed(node, data, axis)
        else:
            raise _UnknownUse

    def _gather_rows(self, node: onnx.NodeProto, data: _Form | None, places: _Rows, axis: int) -> None:
        """Emit what selected rows have at places that are theirs."""
        if isinstance(data, _Places) and data.form == "flat" and data.mask == places.mask and axis == 0:
            self._e.emit("Identity", [node.input[1]], node.output[0])
            self._forms[node.output[0]] = places
            return
        is_whole = data is None
        if isinstance(data, _Rows) and places.mask is not None:
            is_whole = data.parts == (places.mask.name,) and axis % data.rank == data.axis
        if not is_whole:
            raise _UnknownUse
        rank = data.rank if isinstance(data, _Rows) else self._rank(node.input[0])
        self._keep(node, _Rows(parts=places.parts, axis=axis % rank + places.axis, rank=rank + places.rank - 1))

    def _gather_fixed(self, node: onnx.NodeProto, data: _Form | None, axis: int) -> None:
        """Emit some of the sizes or columns of what has rows."""
        places = self._e.value(node.input[1])
        if places is None:
            raise _UnknownUse
        if isinstance(data, _Sizes):
            self._sizes(node, [data.items[place] for place in places.reshape(-1)])
        elif isinstance(data, _Chosen) and data.is_table and axis in (1, -1):
            self._keep(node, replace(data, is_table=False) if places.tolist() in (_BOXES, [_BOXES]) else None)
        elif isinstance(data, _Places) and data.form == "row" and axis == 0 and places.tolist() == 0:
            self._keep(node, replace(data, form="flat"))
        elif isinstance(data, _Rows) and axis % data.rank != data.axis:
            more = places.ndim - 1
            moved = data.axis + (more if axis % data.rank < data.axis else 0)
            self._keep(node, replace(data, axis=moved, rank=data.rank + more, mask=None, data=None))
        else:
            raise _UnknownUse

    def _shape(self, node: onnx.NodeProto) -> None:
        form = self._forms[node.input[0]]
        if graphs.attribute(node, "start", 0) or graphs.attribute(node, "end") is not None:
            raise _UnknownUse
        if isinstance(form, _Chosen):
            self._keep(node, None)
        elif isinstance(form, _Rows):
            self._sizes(node, [_Count(parts=form.parts) if axis == form.axis else None for axis in range(form.rank)])
        elif isinstance(form, _Places) and form.form == "flat":
            self._sizes(node, [_Count(parts=(form.mask.name,))])
        else:
            raise _UnknownUse

    def _sizes(self, node: onnx.NodeProto, items: Sequence[_Count | int | None]) -> None:
        is_open = any(isinstance(item, _Count) for item in items)
        self._keep(node, _Sizes(items=tuple(items)) if is_open else None)

    def _product(self, node: onnx.NodeProto) -> None:
        """Emit a number of elements, which is 0 if there are no rows."""
        form = self._forms[node.input[0]]
        items = form.items if isinstance(form, _Sizes) else ()
        parts = [each.parts for each in items if isinstance(each, _Count)]
        if len(parts) != 1:
            raise _UnknownUse
        self._keep(node, _Nothing(parts=parts[0], is_product=True))

    def _least(self, node: onnx.NodeProto) -> None:
        """Emit the least of a constant and a number of rows."""
        items = self._items(node.input[0])
        counts = [item for item in items if isinstance(item, _Count)]
        limits = [item for item in items if isinstance(item, int)]
        if len(items) != 2 or len(counts) != 1 or len(limits) != 1:
            raise _UnknownUse
        self._keep(node, _Limited(parts=counts[0].parts, most=limits[0]))

    def _items(self, name: str) -> Sequence[_Count | int | None]:
        """Return the elements of a vector of sizes."""
        form, value, shape = self._forms.get(name), self._e.value(name), self._e.shapes.get(name)
        if isinstance(form, _Sizes):
            return form.items
        if value is not None and value.ndim <= 1:
            return [int(each) for each in value.reshape(-1)]
        if form is not None or shape is None or len(shape) != 1:
            raise _UnknownUse
        return [None] * shape[0]

    def _top_k(self, node: onnx.NodeProto) -> None:
        rows, limit = (self._forms.get(name) for name in node.input)
        if not isinstance(rows, _Rows) or not isinstance(limit, _Limited) or rows.parts != limit.parts:
            raise _UnknownUse
        mask = self._masks.get(rows.parts[0])
        if mask is None or mask.scores is None or rows.data != mask.scores:
            raise _UnknownUse
        order = [graphs.attribute(node, name, 1) for name in ("largest", "sorted")]
        if not all(order) or graphs.attribute(node, "axis", -1) not in (0, -1):
            raise _UnknownUse
        scores = self._e.emit("Where", [mask.name, mask.scores, self._e.constant(-np.inf)])
        best = onnx.NodeProto(op_type="TopK", output=node.output, attribute=node.attribute)
        best.input.extend([scores, self._e.constant([min(limit.most, mask.size)], np.int64)])
        self._e.append(best)
        values, places = node.output
        made = _Rows(parts=(places,), axis=0, rank=1)
        self._kept[made.parts] = self._e.emit("Gather", [mask.name, places], axis=0)
        self._forms |= {values: made, places: replace(made, mask=mask)}

    def _by_element(self, node: onnx.NodeProto) -> None:
        forms = [self._forms.get(name) for name in node.input if name]
        first = forms[0]
        if node.op_type == "Identity" or (node.op_type == "Cast" and not isinstance(first, _Rows)):
            self._keep(node, first)
        elif node.op_type == "Equal" and isinstance(first, _Nothing):
            value = self._e.value(node.input[1])
            if not first.is_product or value is None or value.any():
                raise _UnknownUse
            self._keep(node, replace(first, is_product=False))
        else:
            self._keep(node, self._broadcast(node))

    def _broadcast(self, node: onnx.NodeProto) -> _Rows:
        """Return the rows of an operator on elements; whatever has no rows must be the same for each."""
        forms = {name: self._forms.get(name) for name in node.input if name}
        rows = [form for form in forms.values() if isinstance(form, _Rows)]
        if len({(form.parts, form.rank - form.axis) for form in rows}) != 1:
            raise _UnknownUse
        behind, rank = rows[0].rank - rows[0].axis, max(form.rank for form in rows)
        for name, form in forms.items():
            shape = self._e.shapes.get(name) if form is None else ()
            if shape is None or not isinstance(form, _Rows | None):
                raise _UnknownUse
            if len(shape) >= behind and shape[-behind] != 1:
                raise _UnknownUse
            rank = max(rank, len(shape))
        return _Rows(parts=rows[0].parts, axis=rank - behind, rank=rank)

    def _unsqueeze(self, node: onnx.NodeProto) -> None:
        form, axes = self._forms[node.input[0]], self._axes(node)
        if isinstance(form, _Sizes | _Limited) or (isinstance(form, _Chosen) and not form.is_table):
            self._keep(node, form)
        elif isinstance(form, _Places) and form.form == "flat" and axes is not None and len(axes) == 1:
            self._keep(node, replace(form, form="row" if axes[0] == 0 else "column"))
        elif isinstance(form, _Rows) and axes:
            rank = form.rank + len(axes)
            added = {axis % rank for axis in axes}
            kept = [axis for axis in range(rank) if axis not in added]
            self._keep(node, replace(form, axis=kept[form.axis], rank=rank, data=None))
        else:
            raise _UnknownUse

    def _squeeze(self, node: onnx.NodeProto) -> None:
        form, axes = self._forms[node.input[0]], self._axes(node)
        if isinstance(form, _Sizes | _Limited) or (isinstance(form, _Chosen) and not form.is_table):
            self._keep(node, form)
        elif isinstance(form, _Places) and axes == ([0] if form.form == "row" else [1]):
            self._keep(node, replace(form, form="flat"))
        elif isinstance(form, _Rows) and axes:
            gone = {axis % form.rank for axis in axes}
            kept = [axis for axis in range(form.rank) if axis not in gone]
            if form.axis in gone:
                raise _UnknownUse
            self._keep(node, replace(form, axis=kept.index(form.axis), rank=len(kept), data=None))
        else:
            raise _UnknownUse

    def _axes(self, node: onnx.NodeProto) -> list[int] | None:
        listed = graphs.attribute(node, "axes")
        if len(node.input) > 1 and node.input[1]:
            value = self._e.value(node.input[1])
            listed = None if value is None else value.reshape(-1)
        return None if listed is None else [int(axis) for axis in listed]

    def _reshape(self, node: onnx.NodeProto) -> None:
        form = self._forms.get(node.input[0])
        shape = self._e.value(node.input[1])
        if isinstance(form, _Limited) or (isinstance(form, _Sizes) and len(form.items) == 1):
            self._keep(node, form)
        elif isinstance(form, _Places) and shape is not None and shape.tolist() == [-1]:
            self._keep(node, replace(form, form="flat"))
        elif isinstance(form, _Rows) and form.axis == 0 and shape is None:
            rows, *rest = self._items(node.input[1])
            if rows != _Count(parts=form.parts) or any(isinstance(item, _Count) for item in rest):
                raise _UnknownUse
            self._keep(node, replace(form, rank=1 + len(rest), mask=None, data=None))
        else:
            raise _UnknownUse

    def _flatten(self, node: onnx.NodeProto) -> None:
        form = self._forms[node.input[0]]
        if not isinstance(form, _Rows) or form.axis != 0 or graphs.attribute(node, "axis", 1) != 1:
            raise _UnknownUse
        self._keep(node, replace(form, rank=2, mask=None, data=None))

    def _slice(self, node: onnx.NodeProto) -> None:
        form = self._forms.get(node.input[0])
        axes = self._e.value(node.input[3]) if len(node.input) > 3 else None
        if isinstance(form, _Chosen) and not form.is_table:
            self._keep(node, form)
        elif isinstance(form, _Rows) and axes is not None and form.axis not in [axis % form.rank for axis in axes]:
            self._keep(node, replace(form, data=None))
        else:
            raise _UnknownUse

    def _concat(self, node: onnx.NodeProto) -> None:
        forms, axis = [self._forms.get(name) for name in node.input], graphs.attribute(node, "axis", 0)
        if any(isinstance(form, _Sizes) for form in forms):
            self._sizes(node, [item for name in node.input for item in self._items(name)])
            return
        rows = [form for form in forms if isinstance(form, _Rows)]
        if len(rows) < len(forms) or len({(form.axis, form.rank) for form in rows}) != 1:
            raise _UnknownUse
        if axis % rows[0].rank == rows[0].axis:
            parts = tuple(part for form in rows for part in form.parts)
            self._keep(node, replace(rows[0], parts=parts, mask=None, data=None))
        elif len({form.parts for form in rows}) == 1:
            self._keep(node, replace(rows[0], mask=None, data=None))
        else:
            raise _UnknownUse

    def _filled(self, node: onnx.NodeProto) -> None:
        """Emit as many rows of one number as others have."""
        form = self._forms[node.input[0]]
        items = form.items if isinstance(form, _Sizes) else ()
        counts = [item for item in items if isinstance(item, _Count)]
        if len(counts) != 1:
            raise _UnknownUse
        self._keep(node, _Rows(parts=counts[0].parts, axis=items.index(counts[0]), rank=len(items)))

    def _reduced(self, node: onnx.NodeProto) -> None:
        """Emit a reduction of each row, or the largest number of all rows that masks keep."""
        form, axes = self._forms[node.input[0]], self._axes(node)
        if not isinstance(form, _Rows) or (axes is None and any(list(node.input)[1:])):
            raise _UnknownUse
        reduced = sorted({axis % form.rank for axis in axes or range(form.rank)})
        if form.axis not in reduced:
            kept = [axis for axis in range(form.rank) if axis not in reduced or graphs.attribute(node, "keepdims", 1)]
            self._keep(node, _Rows(parts=form.parts, axis=kept.index(form.axis), rank=len(kept)))
            return
        if len(reduced) < form.rank:
            raise _UnknownUse
        kept_rows = self._e.reshape(self._rows_kept(form), [-1, *[1] * (form.rank - form.axis - 1)])
        chosen = self._e.emit("Where", [kept_rows, node.input[0], self._e.constant(-np.inf)])
        self._e.copy(node, "ReduceMax", [chosen, *node.input[1:]], node.output[0])

    def _largest_place(self, node: onnx.NodeProto) -> None:
        form, axis = self._forms[node.input[0]], graphs.attribute(node, "axis", 0)
        if not isinstance(form, _Rows) or axis % form.rank == form.axis:
            raise _UnknownUse
        kept = [each for each in range(form.rank) if each != axis % form.rank or graphs.attribute(node, "keepdims", 1)]
        self._keep(node, _Rows(parts=form.parts, axis=kept.index(form.axis), rank=len(kept)))

    def _rows_kept(self, form: _Rows) -> str:
        if form.parts not in self._kept:
            self._kept[form.parts] = self._e.emit("Concat", [self._kept[part,] for part in form.parts], axis=0)
        return self._kept[form.parts]

    def _choose(self, node: onnx.NodeProto) -> None:
        """Emit the choice of boxes, of which those that masks do not keep are none."""
        boxes, scores = (self._forms.get(name) for name in node.input[:2])
        given = [*node.input, "", "", ""][: _LEAST_SCORE + 1]
        if not isinstance(boxes, _Rows) or not isinstance(scores, _Rows) or boxes.parts != scores.parts:
            raise _UnknownUse
        if (boxes.axis, scores.axis) != (1, 2) or any(name in self._forms for name in given[2:]):
            raise _UnknownUse
        given[1] = self._e.emit("Where", [self._rows_kept(scores), given[1], self._e.constant(-np.inf)])
        given[_LEAST_SCORE] = given[_LEAST_SCORE] or self._e.constant([np.finfo(np.float32).min])
        self._e.copy(node, "NonMaxSuppression", given, node.output[0])
        self._forms[node.output[0]] = _Chosen(parts=boxes.parts, is_table=True)

    def _branch(self, node: onnx.NodeProto) -> None:
        form, branch = self._forms.get(node.input[0]), graphs.attribute(node, "then_branch")
        if not isinstance(form, _Nothing) or form.is_product or not self._is_empty(branch):
            raise _UnknownUse
        raise _BranchFound(node, form.parts)

    def _is_empty(self, branch: onnx.GraphProto) -> bool:
        """Return whether a branch has constants without elements, and nothing else."""
        sizes = {tensor.name: math.prod(tensor.dims) for tensor in branch.initializer}
        for node in branch.node:
            value = graphs.attribute(node, "value") if node.op_type == "Constant" else None
            sizes |= {} if value is None else {node.output[0]: math.prod(value.dims)}
        known = {name: math.prod(shape) for name, shape in self._e.shapes.items()} | sizes
        return all(known.get(value.name) == 0 for value in branch.output)

    def _rank(self, name: str) -> int:
        if name not in self._e.shapes:
            raise _UnknownUse
        return len(self._e.shapes[name])


_METHODS: Mapping[str, str] = {
    **dict.fromkeys(_BY_ELEMENT, "_by_element"),
    "Concat": "_concat", "ConstantOfShape": "_filled", "Flatten": "_flatten", "Gather": "_gather",
    "GatherND": "_gather_nd", "If": "_branch", "ArgMax": "_largest_place", "NonMaxSuppression": "_choose",
    "ReduceMax": "_reduced", "ReduceMin": "_least", "ReduceProd": "_product", "Reshape": "_reshape", "Shape": "_shape",
    "Slice": "_slice", "Squeeze": "_squeeze", "TopK": "_top_k", "Transpose": "_transpose",
    "Unsqueeze": "_unsqueeze",
}  # fmt: skip
