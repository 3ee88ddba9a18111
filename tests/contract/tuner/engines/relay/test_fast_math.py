"""What is computed in vectors is as exact as float32 is, only builds that may be rewritten compute so, and shuffles."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.tuner.engines.relay.test_searching import inside_all

pytestmark = pytest.mark.engine

FUNCTIONS = """
import math
import numpy as np
from tuner.engines.relay import fast_math
from tvm import relay
from tvm.contrib import graph_executor
TARGET = targets.resolve(f"llvm -mcpu={native_cpu(tvm)}", 1)
RANDOM = np.random.default_rng(0)
WIDE = np.float32(np.concatenate([np.linspace(-87, 87, 9973), np.linspace(-5, 5, 9973), -np.logspace(-30, 0, 54)]))
POSITIVE = np.float32(np.logspace(-6, 6, 9973))

def calls(function):
    found = []
    relay.analysis.post_order_visit(
        function, lambda node: found.append(node.op.name) if isinstance(node, relay.Call) else None
    )
    return found

def applied(function, data):
    x = relay.var("x", shape=data.shape, dtype=str(data.dtype))
    return calls(fast_math.apply(tvm.IRModule.from_expr(relay.Function([x], function(x))))["main"])

def computed(pairs):
    # One build, which takes a second for every function.
    inputs = [relay.var(f"x{at}", shape=data.shape, dtype=str(data.dtype)) for at, (_, data) in enumerate(pairs)]
    outputs = relay.Tuple([function(x) for x, (function, _) in zip(inputs, pairs)])
    module = fast_math.apply(tvm.IRModule.from_expr(relay.Function(inputs, outputs)))
    with tvm.transform.PassContext(opt_level=3):
        executor = graph_executor.GraphModule(relay.build(module, target=TARGET)["default"](tvm.cpu(0)))
    for at, (_, data) in enumerate(pairs):
        executor.set_input(f"x{at}", data)
    executor.run()
    return [executor.get_output(at).numpy().astype("float64") for at in range(len(pairs))]

def c(value):
    return relay.const(np.float32(value))

def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)

def normalized(x, size, alpha, beta, bias):
    padded = np.pad(x * x, ((0, 0), (size // 2, size // 2), (0, 0), (0, 0)))
    sums = sum(padded[:, k : k + x.shape[1]] for k in range(size))
    return x / (bias + alpha / size * sums) ** beta

IMAGE = np.float32(RANDOM.uniform(-9, 9, (2, 10, 3, 5)))
CASES = {
    "exp": (relay.exp, np.exp, WIDE),
    "tanh": (relay.tanh, np.tanh, WIDE),
    "erf": (relay.erf, np.vectorize(math.erf), WIDE),
    "sigmoid": (relay.sigmoid, lambda x: 1 / (1 + np.exp(-x)), WIDE),
    "silu": (lambda x: x * relay.sigmoid(x), lambda x: x / (1 + np.exp(-x)), WIDE),
    "gelu": (lambda x: x * (c(1) + relay.erf(x / c(2**0.5))), lambda x: x * (1 + np.vectorize(math.erf)(x / 2**0.5)),
             np.float32(np.linspace(-0.5, 9, 997))),
    "sixth": (lambda x: x / c(6), lambda x: x / 6, WIDE),
    "softmax": (lambda x: relay.nn.softmax(x, axis=1), lambda x: softmax(x, 1), IMAGE),
    "last": (lambda x: relay.nn.softmax(x, axis=-1), lambda x: softmax(x, -1), IMAGE),
    "lrn": (lambda x: relay.nn.lrn(x, size=5, alpha=0.5, beta=0.75, bias=1.0),
            lambda x: normalized(x, 5, 0.5, 0.75, 1.0), IMAGE),
    **{f"power {p}": (lambda x, p=p: relay.power(x, c(p)), lambda x, p=p: x**p, POSITIVE)
       for p in (-1.0, -0.5, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)},
}
edges = np.float32([-np.inf, -1e30, -200, 0, 200, 1e30, np.inf])
*found, sigmoid, exponential = computed(
    [*((function, data) for function, _, data in CASES.values()), (relay.sigmoid, edges), (relay.exp, edges)]
)
told = {}
for (name, (function, exact, data)), result in zip(CASES.items(), found):
    expected = exact(data.astype("float64"))
    error = float((np.abs(result - expected) / np.maximum(np.abs(expected), 1e-35)).max())
    told[name] = [error, applied(function, data)]
half = [applied(f, np.float16([1, 2, 3])) for f in (relay.exp, relay.sigmoid, lambda x: relay.nn.softmax(x))]
kept = [applied(f, POSITIVE) for f in (
    lambda x: x / c(1e-38), lambda x: relay.power(x, c(0.3)), lambda x: relay.power(c(2), x), relay.log,
    lambda x: relay.power(x, relay.const(np.full((1, 1), 2, "float32"))),
)]
even = applied(lambda x: relay.nn.lrn(x, size=4), IMAGE)
print(json.dumps({"cases": told, "sigmoid": sigmoid.tolist(), "exp": [str(value) for value in exponential],
                  "half": half, "kept": kept, "even": even}))
"""
SHUFFLES = """
def shuffled(x, filled, axes=(0, 2, 1, 3, 4)):
    y = relay.transpose(relay.reshape(relay.nn.relu(x), (1, 4, 6, 5, 5)), axes)
    y = relay.reshape(y, (1, 24, 5, 5))
    if filled:
        y = relay.nn.pad(relay.reshape(y, (1, 4, 6, 5, 5)), ((0, 0), (0, 0), (0, 2), (0, 0), (0, 0)))
        y = relay.reshape(y, (1, 32, 5, 5))
    return relay.nn.relu(y - relay.const(np.float32(1)))

def kernels(function, rewritten):
    x = relay.var("x", shape=(1, 24, 5, 5))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], function(x))))
    module = fast_math.keep_apart(module) if rewritten else module
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(module, target=TARGET)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu(0)))
    executor.set_input("x", np.arange(600, dtype="float32").reshape(1, 24, 5, 5))
    executor.run()
    return library.get_graph_json().count('"op": "tvm_op"'), executor.get_output(0).numpy()

told = []
for filled, axes in ((False, (0, 2, 1, 3, 4)), (True, (0, 2, 1, 3, 4)), (False, (0, 1, 2, 4, 3))):
    (before, expected), (after, found) = (kernels(lambda x: shuffled(x, filled, axes), each) for each in (False, True))
    told.append([before, after, bool((found == expected).all())])
print(json.dumps(told))
"""
BUILDS = """
import sys
import onnx
from onnx import TensorProto, helper
from tuner.engines.relay import tuners
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 3, 3]) for name in "xy")
graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), f"{sys.argv[1]}/m.onnx")
told = {}
for name, tuner, precision in (("autotvm", "autotvm", "f32"), ("ansor", "ansor", "f32"), ("fp16", "autotvm", "fp16")):
    params = {"model": f"{sys.argv[1]}/m.onnx", "tuner": tuner, "precision": precision, "options": {}}
    params |= {"target": "llvm", "threads": 1}
    loaded = [tuners.of(params).load({**params, "rewrite": rewrite}).module for rewrite in (False, True)]
    told[name] = [" exp(" in str(module["main"]) for module in loaded]
print(json.dumps(told))
"""
SLOW = {"exp", "tanh", "erf", "sigmoid", "nn.softmax", "nn.lrn", "power", "divide"}


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return inside_all(FUNCTIONS, SHUFFLES, BUILDS, folder=tmp_path_factory.mktemp("fast-math"))


def test_functions_are_exact_to_a_few_units_in_the_last_place(computed: list[Any]) -> None:
    told = computed[0]
    assert {name: error for name, (error, _) in told["cases"].items() if error > 2e-6} == {}
    slow = {name: SLOW & set(operators) for name, (_, operators) in told["cases"].items()}
    # What is left are true quotients.
    divided = {"sigmoid", "silu", "lrn", "power -1.0", "power -0.5"}
    assert {name: each for name, each in slow.items() if each} == {name: {"divide"} for name in divided}
    assert told["sigmoid"] == pytest.approx([0, 0, 0, 0.5, 1, 1, 1])
    assert told["exp"] == ["0.0", "0.0", "0.0", "1.0", "inf", "inf", "inf"]
    assert told["half"] == [["exp"], ["sigmoid"], ["nn.softmax"]]
    assert told["kept"] == [["divide"], ["power"], ["power"], ["log"], ["power"]]
    assert told["even"] == ["nn.lrn"]


def test_only_builds_that_may_be_rewritten_compute_so(computed: list[Any]) -> None:
    assert computed[2] == {"autotvm": [True, False], "ansor": [True, False], "fp16": [True, False]}


def test_shuffles_of_channels_end_a_kernel_after_their_padding(computed: list[Any]) -> None:
    plain, filled, other = computed[1]
    assert plain == [1, 2, True]
    assert filled == [1, 2, True]
    assert other == [1, 1, True]
