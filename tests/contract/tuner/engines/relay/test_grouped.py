"""Grouped convolutions of blocked channels give what TVM's own do, and networks take them where records say so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.tuner.engines.relay.test_searching import inside_all

pytestmark = pytest.mark.engine

TASK = "group_conv2d_NCHWc.x86"
PREPARED = """
import numpy as np
from tuner.engines.relay import comparing, compiling, extracting, importing
from tuner.engines.relay.templates import grouped
from tvm import relay
from tvm.autotvm.measure import MeasureInput, MeasureResult
from tvm.contrib import graph_executor
comparing.set_up()
PLACE = f"llvm -mcpu={native_cpu(tvm)}"
TARGET = targets.resolve(PLACE, 1)
RANDOM = np.random.default_rng(0)

def records(image, filters, kernel, strides, groups, blocks):
    padding = (kernel // 2,) * 4
    tensors = (("TENSOR", image, "float32"), ("TENSOR", (filters, image[1] // groups, kernel, kernel), "float32"))
    arguments = (*tensors, strides, padding, (1, 1), groups, "NCHW", "NCHW", "float32")
    task = workloads.create("group_conv2d_NCHWc.x86", arguments, TARGET)
    found = []
    for index in range(len(task.config_space)):
        config = task.config_space.get(index)
        if [config[name].size[-1] for name in ("tile_ic", "tile_oc", "tile_ow")] == list(blocks):
            found.append((MeasureInput(TARGET, task, config), MeasureResult((1e-6,), 0, 0.0, 0.0)))
    return found
"""
OPERATORS = """
told = []
for case in (
    ((1, 32, 8, 6), 48, 1, (1, 1), 4, (8, 12, 6)),
    ((2, 24, 9, 7), 32, 3, (2, 1), 2, (4, 16, 7)),
):
    told.append([comparing.compare_autotvm(autotvm.record.encode(*pair), PLACE, 1) for pair in records(*case)])
print(json.dumps(told))
"""
NETWORK = """
def constant(*shape):
    return relay.const(RANDOM.standard_normal(shape).astype("float32") / 5)

def convolved(data, filters, kernel, groups):
    weights = constant(filters, int(kernel[0]), *kernel[1:])
    return relay.nn.conv2d(data, weights, channels=filters, kernel_size=kernel[1:], groups=groups)

x = relay.var("x", shape=(1, 32, 8, 6))
y = relay.nn.relu(convolved(x, 48, (8, 1, 1), 4))
y = relay.nn.relu(convolved(y + constant(48, 1, 1), 32, (48, 1, 1), 1))
y = convolved(y, 6, (16, 1, 1), 2)
module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))
imported = importing.Imported(module=module, params={}, inputs=("x",), outputs=("y",), operators={})

def run(records, module=module):
    with compiling.dispatch(records), tvm.transform.PassContext(opt_level=3):
        library = relay.build(module, target=TARGET)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu(0)))
    executor.set_input("x", np.linspace(-1, 1, 32 * 48, dtype="float32").reshape(1, 32, 8, 6))
    executor.run()
    return executor.get_output(0).numpy(), library.get_graph_json()

(expected, plain), (found, own) = run([]), run(records((1, 32, 8, 6), 48, 1, (1, 1), 4, (8, 12, 6))[:1])
(alone, preferred) = run([], grouped.preferred(module))
print(json.dumps({
    "tasks": [each["name"] for each in extracting.extract(imported, TARGET, keep_layout=True, rewrite=True)],
    "blocked": [
        graph.count('"func_name": "tvmgen_default_fused_nn_contrib_conv2d_NCHWc')
        for graph in (plain, own, preferred)
    ],
    "error": float(np.abs(np.stack([found, alone]) - expected).max() / np.abs(expected).max()),
}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return inside_all(PREPARED + OPERATORS, NETWORK, folder=tmp_path_factory.mktemp("grouped"))


def test_blocks_read_their_own_group(told: list[Any]) -> None:
    points, planes = told[0]
    assert (len(points), len(planes)) == (2, 2)
    assert [each.get("wrong") for each in (*points, *planes)] == [False] * 4, told[0]
    assert all(each["max_rel"] < 1e-6 for each in (*points, *planes))


def test_networks_use_it_where_records_say_so_and_otherwise_stay_as_they_were(told: list[Any]) -> None:
    network = told[1]
    # The last convolution has 3 channels a group: no vector.
    assert network["tasks"].count(TASK) == 1
    assert network["blocked"] == [1, 2, 2]
    assert network["error"] < 1e-6
