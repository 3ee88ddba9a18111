"""Convolutions by minimal filtering give what direct ones give, and networks take them where records say so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.tuner.engines.relay.test_searching import inside_all

pytestmark = pytest.mark.engine

TASK = "conv2d_winograd_NCHWc.x86"
PREPARED = """
import numpy as np
from tuner.engines.relay import candidates, comparing, compiling, extracting, importing
from tuner.engines.relay.templates import winograd
from tvm import relay
from tvm.autotvm.measure import MeasureInput, MeasureResult
from tvm.contrib import graph_executor
comparing.set_up()
PLACE = f"llvm -mcpu={native_cpu(tvm)}"
TARGET = targets.resolve(PLACE, 1)
RANDOM = np.random.default_rng(0)

def task(image, filters, padding, taps):
    tensors = (("TENSOR", image, "float32"), ("TENSOR", (filters, image[1], *taps), "float32"))
    arguments = (*tensors, (1, 1), padding, (1, 1), "NCHW", "NCHW", "float32")
    return workloads.create("conv2d_winograd_NCHWc.x86", arguments, TARGET)

def record(image, filters, padding, tiles, first, blocks, taps=(3, 3)):
    \"\"\"The first schedule that cuts tiles so, of the blocks given.\"\"\"
    own = task(image, filters, padding, taps)
    wanted = dict(zip(("tile_ic", "tile_oc"), blocks))
    for index in range(len(own.config_space)):
        config = own.config_space.get(index)
        sizes = [config[name].size[-1] for name in wanted]
        if config["tiles"].size[1:] == tiles and config["transform_first"].val == first and sizes == list(blocks):
            return MeasureInput(TARGET, own, config), MeasureResult((1e-6,), 0, 0.0, 0.0)
    raise LookupError(tiles)
"""
OPERATORS = """
told = []
for case in (
    ((1, 16, 14, 14), 32, (1, 1, 1, 1), [4, 4, 16], False, (16, 16)),
    ((2, 16, 7, 9), 16, (1, 1, 1, 1), [4, 1, 8], False, (8, 16)),
    ((2, 8, 7, 9), 16, (0, 1, 2, 0), [2, 2, 8], True, (4, 8)),
    ((1, 16, 13, 22), 16, (0, 0, 0, 0), [4, 1, 5], True, (16, 16)),
    ((1, 16, 9, 11), 16, (2, 2, 2, 2), [2, 1, 6], False, (16, 16), (5, 5)),
    ((1, 16, 1, 55), 16, (0, 0, 0, 0), [4, 1, 13], False, (16, 16), (1, 5)),
    ((1, 16, 9, 4), 16, (1, 0, 1, 0), [2, 5, 10], True, (16, 16), (3, 1)),
):
    [measured, result] = record(*case)
    line = autotvm.record.encode(measured, result)
    told.append(comparing.compare_autotvm(line, PLACE, 1))
print(json.dumps(told))
"""
NETWORK = """
def constant(*shape):
    return relay.const(RANDOM.standard_normal(shape).astype("float32") / 20)

x = relay.var("x", shape=(1, 32, 13, 11))
first = relay.nn.conv2d(x, constant(48, 32, 3, 3), padding=(1, 1), channels=48, kernel_size=(3, 3))
gated = relay.nn.bias_add(first, constant(48))
gated = gated * relay.sigmoid(gated)
second = relay.nn.conv2d(gated, constant(48, 48, 3, 3), padding=(1, 1), channels=48, kernel_size=(3, 3))
last = relay.nn.conv2d(relay.nn.relu(second + gated), constant(10, 48, 1, 1), channels=10, kernel_size=(1, 1))
module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], last)))
imported = importing.Imported(module=module, params={}, inputs=("x",), outputs=("y",), operators={})
tasks = {
    rewrite: extracting.extract(imported, TARGET, keep_layout=True, rewrite=rewrite) for rewrite in (False, True)
}
names = {rewrite: [each["name"] for each in found] for rewrite, found in tasks.items()}
operators = {each["alternatives"] for each in tasks[True]} - {None}

def run(records):
    with compiling.dispatch(records), tvm.transform.PassContext(opt_level=3):
        library = relay.build(module, target=TARGET)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu(0)))
    executor.set_input("x", np.linspace(-1, 1, 32 * 13 * 11, dtype="float32").reshape(1, 32, 13, 11))
    executor.run()
    return executor.get_output(0).numpy(), library.get_graph_json()

records = [
    record((1, 32, 13, 11), 48, (1, 1, 1, 1), [4, 2, 6], False, (16, 16)),
    record((1, 48, 13, 11), 48, (1, 1, 1, 1), [2, 7, 14], True, (16, 16)),
]
(expected, plain), (found, own) = run([]), run(records)
weights = relay.var("weights", shape=(48, 32, 3, 3))
computed = relay.nn.conv2d(x, relay.abs(weights), padding=(1, 1), channels=48, kernel_size=(3, 3))
with compiling.dispatch(records), tvm.transform.PassContext(opt_level=3):
    optimized, _ = relay.optimize(tvm.IRModule.from_expr(relay.Function([x, weights], computed)), target=TARGET)
print(json.dumps({
    "without": names[False], "with": names[True],
    "together": [sorted(each["name"] for each in tasks[True] if each["alternatives"] == one) for one in operators],
    "alternatives without": [each["alternatives"] for each in tasks[False]],
    "calls": [graph.count('"func_name": "tvmgen_default_fused_nn_contrib_conv2d_winograd') for graph in (plain, own)],
    "conv2d": [graph.count('"func_name": "tvmgen_default_fused_nn_contrib_conv2d_NCHWc') for graph in (plain, own)],
    "computed": ["winograd" in str(optimized), "contrib_conv2d_NCHWc" in str(optimized)],
    "error": float(np.abs(found - expected).max() / np.abs(expected).max()),
}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return inside_all(PREPARED + OPERATORS, NETWORK, folder=tmp_path_factory.mktemp("winograd"))


def test_every_way_to_cut_tiles_agrees_with_the_direct_convolution(told: list[Any]) -> None:
    assert [each.get("wrong") for each in told[0]] == [False] * 7, told[0]
    assert all(0 < each["max_rel"] < 1e-5 for each in told[0])


def test_networks_use_it_where_records_say_so_and_otherwise_stay_as_they_were(told: list[Any]) -> None:
    network = told[1]
    assert TASK not in network["without"]
    assert network["with"].count(TASK) == 2
    assert network["together"] == [["conv2d_NCHWc.x86", TASK]] * 2
    assert set(network["alternatives without"]) == {None}
    assert network["with"].count("conv2d_NCHWc.x86") == network["without"].count("conv2d_NCHWc.x86")
    assert (network["calls"], network["conv2d"]) == ([0, 2], [3, 1])
    assert network["error"] < 1e-5


def test_weights_that_are_computed_are_not_transformed_in_every_run(told: list[Any]) -> None:
    assert told[1]["computed"] == [False, True]
