"""Selections behind a threshold, made of fixed size."""

from __future__ import annotations

import pytest

from tests.support.tuner.engines.onnx import inside

pytestmark = pytest.mark.engine

_COMPARED = """
import numpy as np
from tests.support.tuner.engines.onnx.detectors import SELECTIONS, Detector
from tuner.engines.onnx import sessions
from tuner.engines.onnx.rewriting import applying

def told_of(model):
    results, done = [], applying.apply(type(model).FromString(model.SerializeToString()), 0, applying.PLAIN)
    for seed in range(5):
        image = np.random.default_rng(seed).standard_normal((1, 8, 6, 6)).astype(np.float32)
        each = [sessions.run(sessions.open_session(one, threads=1), {"image": image}) for one in (model, done.model)]
        same = all(np.array_equal(each[0][name], each[1][name]) for name in each[0])
        results.append([len(next(iter(each[0].values()))), bool(same)])
    left = {node.op_type for node in done.model.graph.node} & {"NonZero", "GatherND", "If"}
    return {"applied": done.applied.get("selected", 0), "undone": done.undone, "left": sorted(left), "results": results}
"""

_SELECTED = """
told = {name: told_of(Detector(**options).model()) for name, options in SELECTIONS.items()}
"""

_LEFT = """
def replaced(old, new, **more):
    found = Detector(least=0.6, **more)
    for node in found._nodes:
        if node.op_type == old:
            node.op_type = new
    return found.model()

whole = Detector(least=0.6)
best = next(node.output[0] for node in whole._nodes if node.op_type == "TopK")
summed = Detector(least=0.6)
sums = summed.add("CumSum", best, summed.constant(0), outputs=["sums"])
class Counting(Detector):
    # ``counted`` [1] is how many are chosen; of no boxes [0].

    def _first(self, chosen):
        return self.add("Shape", chosen)

def counting():
    found = Counting(least=0.6)
    del found._nodes[-3:]
    found.add("Cast", found._nodes[-1].output[0], outputs=["counted"], to=1)
    return found.model(["counted"])

told = {
    "the branch for some returns more than is chosen": told_of(counting()),
    "how many there are is a result": told_of(whole.model(["boxes", best])),
    "what no row has by itself": told_of(summed.model(["boxes", "sums"])),
    "the threshold is an upper one": told_of(replaced("Greater", "Less")),
    "the limit is not the least": told_of(replaced("ReduceMin", "ReduceMax", most=0)),
}
"""


def test_selections_of_fixed_size_choose_the_same() -> None:
    told = inside.run(_COMPARED + _SELECTED)
    for name, each in told.items():
        assert each["applied"] == (1 if ("all" in name.split() and name != "all") or "box" in name else 3), name
        # What is selected of results is selected by nobody later.
        left = ["GatherND", "NonZero"] if "best" in name else []
        assert (each["undone"], each["left"]) == ({}, left), name
        assert all(same for _, same in each["results"]), name
        counts = {count for count, _ in each["results"]}
        assert counts == {0} if "none" in name else max(counts) > 0, name


def test_what_may_not_be_computed_row_by_row_is_left() -> None:
    for name, each in inside.run(_COMPARED + _LEFT).items():
        assert (each["applied"], each["undone"]) == (0, {}), name
        assert "NonZero" in each["left"], name
        assert all(same for _, same in each["results"]), name
