"""What kinds of inputs are told apart, and what values each is given."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.tuner.engines.onnx import inside

pytestmark = pytest.mark.engine

NETWORK = """
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx import arrays, kinds
from tuner.engines.onnx.accuracy import comparing

KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64,
         np.dtype(np.int32): TensorProto.INT32}

def spec(name, shape, dtype="float32"):
    return {"name": name, "dtype": dtype, "shape": list(shape)}

def table(name, rows, columns=4):
    return numpy_helper.from_array(np.zeros((rows, columns), np.float32), name)

def graph(nodes, tensors=(), outputs=()):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs]
    return helper.make_graph(nodes, "g", [], values, list(tensors))

def made(specs, seed, read_by=None):
    return arrays.make(specs, seed, read_by)
"""

BY_SPEC = [
    (("x", [1, 3, 32, 32]), "image"),
    (("x", [2, 1, 28, 28]), "image"),
    (("x", [1, 64, 48, 3]), "image"),
    (("x", [1, 3, 4, 4]), "uniform"),
    (("x", [1, 16, 32, 32]), "uniform"),
    (("x", [1, 16000]), "signal"),
    (("x", [1, 43844, 1]), "signal"),
    (("h0", [1, 1, 64]), "state"),
    (("past_key_values.0.key", [1, 4, 8, 16]), "state"),
    (("attention_mask", [1, 16], "int64"), "mask"),
    (("mask", [1, 1, 16, 16]), "mask"),
    (("token_type_ids", [1, 16], "int64"), "token types"),
    (("position_ids", [1, 16], "int64"), "positions"),
    (("picture", [1, 32, 32, 3], "uint8"), "image 0..255"),
    (("codes", [1, 100], "uint8"), "bytes"),
    (("codes", [1, 3, 32, 32], "int8"), "bytes"),
    (("rate", [1], "int64"), "uniform"),
    (("flag", [4], "bool"), "uniform"),
]


def test_kinds_by_name_type_and_shape() -> None:
    specs = [list(given) for given, _ in BY_SPEC]
    program = "told = [kinds.of_inputs([spec(*each)])[each[0]].name for each in json.loads(sys.argv[1])]"
    assert inside.run(NETWORK + program, json.dumps(specs)) == [wanted for _, wanted in BY_SPEC]


def test_kinds_by_the_first_operators() -> None:
    program = """
node = helper.make_node
words = graph([node("Gather", ["table", "input_ids"], ["e"])], [table("table", 30522)])
letters = graph([node("Cast", ["x"], ["c"]), node("Gather", ["table", "c"], ["e"])], [table("table", 257)])
coded = graph([node("OneHot", ["x", "depth", "values"], ["e"])], [numpy_helper.from_array(np.array(257), "depth")])
elsewhere = graph([node("Gather", ["table", "x"], ["e"], axis=1)], [table("table", 7)])
scaled = graph([node("Transpose", ["x"], ["t"]), node("Div", ["t", "k"], ["y"])],
               [numpy_helper.from_array(np.array(255, np.float32), "k")])
cell = graph([node("LSTM", ["x", "w", "r", "b", "", "before"], ["y"])])

def kind(read_by, *args):
    [found] = kinds.of_inputs([spec(*args)], read_by).values()
    return [found.name, found.limit]

told = [
    kind(words, "input_ids", [1, 9], "int64"),
    kind(letters, "x", [1, 9], "int32"),
    kind(coded, "x", [1, 9], "int32"),
    kind(elsewhere, "x", [1, 9], "int64"),
    kind(scaled, "x", [1, 3, 32, 32]),
    kind(cell, "before", [1, 1, 8]),
]
"""
    assert inside.run(NETWORK + program) == [
        ["ids", 30522],
        ["bytes", 257],
        ["bytes", 257],
        ["uniform", None],
        ["image 0..255", None],
        ["state", None],
    ]


def test_values_that_the_model_compares_an_input_with_are_tried() -> None:
    program = """
node = helper.make_node
def constant(name, *values, dtype=np.int64):
    return numpy_helper.from_array(np.array(values if len(values) > 1 else values[0], dtype), name)
rates = graph([node("Equal", ["rate", "fast"], ["f"]), node("Equal", ["slow", "rate"], ["s"])],
              [constant("fast", 16000), constant("slow", 8000)])
level = graph([node("Greater", ["level", "half"], ["g"])], [constant("half", 0.5, dtype=np.float32)])
pixels = graph([node("Greater", ["x", "half"], ["g"])], [constant("half", 0.5, dtype=np.float32)])
words = graph([node("Equal", ["x", "none"], ["m"]), node("Gather", ["table", "x"], ["e"])],
              [constant("none", 1), table("table", 9)])

def tried(read_by, *args):
    [kind] = kinds.of_inputs([spec(*args)], read_by).values()
    seeded = [arrays.make([spec(*args)], seed, read_by)[args[0]].reshape(-1).tolist() for seed in range(3)]
    return [kind.name, seeded]

told = [
    tried(rates, "rate", [], "int64"),
    tried(level, "level", [1]),
    kinds.of_inputs([spec("x", [1, 3, 8, 8])], pixels)["x"].name,
    kinds.of_inputs([spec("x", [1, 4], "int64")], words)["x"].name,
    set(tried(rates, "rate", [1, 64], "int64")[1][0]) == {0, 8000, 16000},
]
"""
    assert inside.run(NETWORK + program) == [
        ["compared values", [[8000], [16000], [0]]],
        ["compared values", [[0.5], [0.0], [0.5]]],
        "image",
        "ids",
        True,
    ]


def test_pictures_are_smooth_and_in_range() -> None:
    program = """
def facts(seed):
    x = made([spec("x", [2, 3, 64, 48])], seed)["x"].astype(np.float64)
    steps = np.abs(np.diff(x, axis=3))
    return {"low": x.min(), "high": x.max(), "step": float(np.median(steps) / (x.max() - x.min())),
            "edges": float(steps.max() / (x.max() - x.min())), "differ": float(np.abs(x[0] - x[1]).max()),
            "dtype": str(made([spec("x", [2, 3, 64, 48])], seed)["x"].dtype)}
bytes_ = made([spec("x", [1, 32, 32, 3], "uint8")], 0)["x"]
told = [[facts(seed) for seed in range(3)], [int(bytes_.min()), int(bytes_.max())]]
"""
    pictures, bytes_ = inside.run(NETWORK + program)
    assert [(each["low"] >= 0, each["high"] <= 1) for each in pictures] == [(True, True), (False, False), (False, True)]
    assert pictures[1]["low"] > -2.2
    assert pictures[1]["high"] < 2.7
    assert pictures[2]["low"] == pytest.approx(-1)
    for each in pictures:
        # Noise has steps of a third of its range.
        assert each["step"] < 0.05
        assert each["edges"] > 0.1
        assert each["differ"] > 0
        assert each["dtype"] == "float32"
    assert bytes_ == [0, 255]


def test_values_of_the_other_kinds() -> None:
    program = """
words = graph([helper.make_node("Gather", ["table", "input_ids"], ["e"])], [table("table", 50)])
ids = [made([spec("input_ids", [1, 400], "int64")], seed, words)["input_ids"] for seed in range(3)]
masks = [made([spec("attention_mask", [2, 16], "int64")], seed)["attention_mask"] for seed in range(3)]
types = made([spec("token_type_ids", [1, 16], "int64")], 2)["token_type_ids"]
places = made([spec("position_ids", [1, 5], "int64")], 2)["position_ids"]
states = [made([spec("h0", [1, 1, 64])], seed)["h0"] for seed in range(2)]
sound = made([spec("x", [1, 16000, 1])], 1)["x"]
told = {
    "ids": [int(min(x.min() for x in ids)), int(max(x.max() for x in ids))],
    "masks": [x.sum(axis=1).tolist() for x in masks],
    "ends": [int(x[0, 0]) for x in masks],
    "types": sorted(set(types.ravel().tolist())), "rising": bool((np.diff(types[0]) >= 0).all()),
    "places": places[0].tolist(),
    "states": [float(np.abs(x).max()) for x in states],
    "sound": [float(sound.min()), float(sound.max()), float(np.abs(np.diff(sound[0, :, 0])).mean())],
    "same": bool((made([spec("x", [1, 3, 16, 16])], 5)["x"] == made([spec("x", [1, 3, 16, 16])], 5)["x"]).all()),
}
"""
    told: dict[str, Any] = inside.run(NETWORK + program)
    assert 0 <= told["ids"][0] < 5
    assert 45 < told["ids"][1] < 50
    assert told["masks"] == [[16, 16], [12, 12], [8, 8]]
    assert told["ends"] == [1, 1, 1]
    assert (told["types"], told["rising"]) == ([0, 1], True)
    assert told["places"] == [0, 1, 2, 3, 4]
    assert told["states"][0] == 0
    assert 0 < told["states"][1] < 1
    low, high, step = told["sound"]
    assert -1 <= low < -0.2 < 0.2 < high <= 1
    assert step < 0.3
    assert told["same"]


def test_classifiers_are_told_from_other_outputs() -> None:
    program = """
node = helper.make_node
def ends(*nodes, shape=(1, 10), tensors=()):
    return sorted(comparing.of_graph(graph(nodes, tensors, [("y", shape)])))

bias = numpy_helper.from_array(np.zeros(10, np.float32), "b")
told = [
    ends(node("Softmax", ["x"], ["y"])),
    ends(node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["y"]), tensors=[bias], shape=(1, 4, 10)),
    ends(node("GlobalAveragePool", ["x"], ["p"]), node("Flatten", ["p"], ["y"])),
    ends(node("Softmax", ["x"], ["y"]), shape=(1, 10, 1, 1)),
    ends(node("Softmax", ["x"], ["y"]), shape=(1, 10, 4, 4)),
    ends(node("Softmax", ["x"], ["y"]), shape=(4, 1)),
    ends(node("LayerNormalization", ["x", "s"], ["y"]), shape=(1, 4, 10)),
    ends(node("Add", ["x", "z"], ["y"]), shape=(1, 4, 10)),
    ends(node("Sigmoid", ["x"], ["y"])),
]
"""
    assert inside.run(NETWORK + program) == [["y"], ["y"], ["y"], ["y"], [], [], [], [], []]
