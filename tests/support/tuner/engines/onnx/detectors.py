"""Detectors as torchvision exports them: boxes above a threshold, the best of these, and what is left of those."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CLASSES, SIDE, CELLS = 3, 6, 36
_INT64 = TensorProto.INT64


class Detector:
    """``image`` [1, 8, 6, 6] to ``boxes`` [n, 4], ``scores`` [n] and ``labels`` [n], of boxes in three classes.

    Of those with a score above ``least``, at most ``most`` of each selection compete. Selected is among the scores of
    each class (``class``), as SSD does, among all of them (``all``), as RetinaNet does, or among the boxes by their
    best scores (``box``), of which all compete. ``asks`` has a branch for no boxes. What is left must exceed ``last``.
    """

    def __init__(
        self, *, least: float, most: int = 7, among: str = "class", asks: bool = True, last: float | None = None
    ) -> None:
        self._rng = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._most, self._asks, self._last = most, asks, last
        boxes, scores = self._heads()
        select = {"class": self._by_class, "all": self._among_all, "box": self._by_box}[among]
        parts = select(boxes, scores, least)
        self._end(*(self.add("Concat", *each, axis=0) for each in zip(*parts, strict=True)))

    def add(self, operator: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any) -> str:
        made = list(outputs) or [f"{operator}_{len(self._nodes)}"]
        self._nodes.append(helper.make_node(operator, list(inputs), made, name=f"{made[0]}_node", **attributes))
        return made[0]

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        self._weights.append(numpy_helper.from_array(np.asarray(values, dtype), f"constant_{len(self._weights)}"))
        return self._weights[-1].name

    def _random(self, *shape: int) -> str:
        return self.constant(self._rng.standard_normal(shape) * 0.4, np.float32)

    def _heads(self) -> tuple[str, str]:
        """Corners [cells, 4] and scores [cells, classes], between them convolutions."""
        deep = self.add("Relu", self.add("Conv", "image", self._random(32, 8, 3, 3), pads=[1] * 4))
        heads = []
        for columns in (4, CLASSES):
            flat = self.add("Transpose", self.add("Conv", deep, self._random(columns, 32, 1, 1)), perm=[0, 2, 3, 1])
            heads.append(self.add("Reshape", flat, self.constant([CELLS, columns])))
        centers = self.add("Mul", self._slice(heads[0], 0, 2), self.constant(3, np.float32))
        reach = self.add("Exp", self._slice(heads[0], 2, 4))
        corners = self.add("Concat", self.add("Sub", centers, reach), self.add("Add", centers, reach), axis=1)
        return corners, self.add("Sigmoid", heads[1])

    def _slice(self, name: str, begin: int, end: int) -> str:
        return self.add("Slice", name, *(self.constant([each]) for each in (begin, end, 1)))

    def _best(self, scores: str, least: float) -> tuple[str, str, str]:
        """The places of scores [n] above ``least``, [m, 1]; the best of them, and these among them."""
        above = self.add("Greater", scores, self.constant(least, np.float32))
        places = self.add("Transpose", self.add("NonZero", above), perm=[1, 0])
        kept = self.add("GatherND", scores, places)
        count = self.add("Gather", self.add("Shape", kept), self.constant(0), axis=0)
        counts = self.add(
            "Concat", self.constant([self._most]), self.add("Unsqueeze", count, self.constant([0])), axis=0
        )
        limit = self.add("Reshape", self.add("ReduceMin", counts, keepdims=0), self.constant([1]))
        number = len(self._nodes)
        self.add("TopK", kept, limit, outputs=[f"best_{number}", f"order_{number}"], axis=-1)
        return places, f"best_{number}", f"order_{number}"

    def _by_class(self, boxes: str, scores: str, least: float) -> list[tuple[str, str, str]]:
        parts = []
        for number in range(CLASSES):
            own = self.add("Gather", scores, self.constant(number), axis=1)
            places, best, order = self._best(own, least)
            rows = self.add("Gather", self.add("GatherND", boxes, places), order, axis=0)
            value = numpy_helper.from_array(np.array([number]))
            parts.append((rows, best, self.add("ConstantOfShape", self.add("Shape", best), value=value)))
        return parts

    def _by_box(self, boxes: str, scores: str, least: float) -> list[tuple[str, str, str]]:
        best = self.add("ReduceMax", scores, axes=[1], keepdims=0)
        classes = self.add("ArgMax", scores, axis=1, keepdims=0)
        above = self.add("Greater", best, self.constant(least, np.float32))
        places = self.add("Transpose", self.add("NonZero", above))
        rows, highest, labels = (self.add("GatherND", each, places) for each in (boxes, best, classes))
        return [(self.add("Abs", rows), highest, labels)]

    def _among_all(self, boxes: str, scores: str, least: float) -> list[tuple[str, str, str]]:
        places, best, order = self._best(self.add("Reshape", scores, self.constant([-1])), least)
        flat = self.add("Squeeze", places, self.constant([1]))
        chosen, classes = self.add("Gather", flat, order, axis=0), self.constant(CLASSES)
        rows = self.add("Gather", boxes, self.add("Div", chosen, classes), axis=0)
        low, high = (
            self.add("Gather", rows, self.constant([0, 1] if low else [2, 3]), axis=1) for low in (True, False)
        )
        parts = [self.add("Unsqueeze", each, self.constant([1])) for each in (low, high)]
        corners = self.add("Flatten", self.add("Concat", *parts, axis=1), axis=1)
        return [(corners, best, self.add("Mod", chosen, classes))]

    def _end(self, boxes: str, scores: str, labels: str) -> None:
        if not self._asks:
            kept = self._suppressed(boxes, scores, labels)
        else:
            size = self.add("ReduceProd", self.add("Shape", boxes), keepdims=0)
            is_empty = self.add("Equal", size, self.constant(0))
            outside, self._nodes = self._nodes, []
            kept = self._suppressed(boxes, scores, labels)
            inside, self._nodes = self._nodes, outside
            ends = [helper.make_tensor_value_info(name, _INT64, None) for name in ("nothing", kept)]
            empty = numpy_helper.from_array(np.zeros(0, np.int64), "nothing")
            branches = (
                helper.make_graph([], "none", [], ends[:1], [empty]),
                helper.make_graph(inside, "some", [], ends[1:]),
            )
            kept = self.add("If", is_empty, then_branch=branches[0], else_branch=branches[1])
        if self._last is not None:
            above = self.add("Greater", self.add("Gather", scores, kept), self.constant(self._last, np.float32))
            kept = self.add("GatherND", kept, self.add("Transpose", self.add("NonZero", above)))
        for name, given in (("boxes", boxes), ("scores", scores), ("labels", labels)):
            self.add("Gather", given, kept, outputs=[name], axis=0)

    def _suppressed(self, boxes: str, scores: str, labels: str) -> str:
        """The rows that are left, in classes by themselves: those lie where no other is."""
        apart = self.add("Add", self.add("ReduceMax", boxes, keepdims=0), self.constant(1, np.float32))
        moved = self.add("Mul", self.add("Cast", labels, to=TensorProto.FLOAT), apart)
        places = self.add("Add", boxes, self.add("Unsqueeze", moved, self.constant([1])))
        limits = self.constant([CELLS * CLASSES]), self.constant([0.4], np.float32)
        rows = self.add("Unsqueeze", places, self.constant([0])), self.add("Unsqueeze", scores, self.constant([0, 1]))
        chosen = self.add("Gather", self.add("NonMaxSuppression", *rows, *limits), self.constant([2]), axis=1)
        return self._first(self.add("Squeeze", chosen, self.constant([1])))

    def _first(self, chosen: str) -> str:
        return self.add("Slice", chosen, *(self.constant([each]) for each in (0, 10, 0)))

    def model(self, outputs: Sequence[str] = ("boxes", "scores", "labels")) -> onnx.ModelProto:
        kinds = {"boxes": (TensorProto.FLOAT, ["n", 4]), "labels": (_INT64, ["n"])}
        ends = [helper.make_tensor_value_info(name, *kinds.get(name, (TensorProto.FLOAT, ["m"]))) for name in outputs]
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 8, SIDE, SIDE])
        graph = helper.make_graph(self._nodes, "detector", [image], ends, self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SELECTIONS: dict[str, dict[str, Any]] = {
    "some": {"least": 0.6},
    "all": {"least": 0.0, "most": 50},
    "none": {"least": 1.5},
    "without a branch": {"least": 0.6, "asks": False},
    "among all": {"least": 0.6, "among": "all"},
    "none among all": {"least": 1.5, "among": "all"},
    "by box": {"least": 0.6, "among": "box", "asks": False},
    "by box, the best": {"least": 0.6, "among": "box", "asks": False, "last": 0.7},
}


def write(folder: str) -> None:
    for name, options in SELECTIONS.items():
        onnx.save(Detector(**options).model(), Path(folder) / f"{name}.onnx")
