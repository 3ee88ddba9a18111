"""What a network's layouts are read to be, beside what ``AlterOpLayout`` then does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.tuner.engines.relay.test_searching import inside

pytestmark = pytest.mark.engine

BRANCHES = """
import random
import numpy as np
from collections import Counter
from tvm import relay
from tvm.autotvm.measure import MeasureInput, MeasureResult
from tuner.engines.relay import compiling, graph_layout, importing
from tuner.engines.relay import graph_layout_reading

def convolution(data, inputs, outputs, kernel=3, groups=1):
    shape = (outputs, inputs // groups, kernel, kernel)
    weights = relay.const(np.random.rand(*shape).astype("float32"))
    options = {"kernel_size": (kernel, kernel), "padding": (kernel // 2,) * 4, "groups": groups}
    return relay.nn.conv2d(data, weights, channels=outputs, **options)

image = relay.var("image", shape=(1, 3, 16, 16))
first = relay.nn.relu(convolution(image, 3, 24))
left = convolution(first, 24, 24)
right = relay.nn.max_pool2d(convolution(first, 24, 24, 1), (3, 3), (1, 1), padding=(1, 1, 1, 1))
added = left + right
joined = relay.concatenate([added, convolution(added, 24, 48, 1)], axis=1)
deep = convolution(relay.sigmoid(joined), 72, 72, groups=72)
gate = relay.sigmoid(convolution(relay.nn.global_avg_pool2d(deep), 72, 72, 1))
cut = relay.strided_slice(deep * gate, [0, 0, 0, 0], [1, 48, 16, 16])
parts = relay.split(cut, [16], axis=1)
mean = relay.mean(convolution(parts[0], 16, 32), axis=[2, 3], keepdims=True)
last = relay.nn.dense(relay.nn.batch_flatten(mean), relay.const(np.random.rand(5, 32).astype("float32")))
body = relay.Tuple([last, convolution(parts[1], 32, 16)])
module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([image], body)))
imported = importing.Imported(module=module, params={}, inputs=("image",), outputs=("a", "b"), operators={})
network = graph_layout_reading.read(imported, TARGET)

def name(block):
    return f"NCHW{block}c" if block else "NCHW"

def predicted(states):
    found = []
    def note(elements, block, other):
        found.append(f"{name(block)} {name(other)} {elements}")
        return 0.0
    graph_layout.seconds(network, states, note)
    return Counter(found)

def actual(pairs):
    found = []
    def visit(node):
        if isinstance(node, relay.Call) and node.op.name == "layout_transform":
            elements = int(np.prod([int(size) for size in node.args[0].checked_type.shape]))
            found.append(f"{node.attrs.src_layout} {node.attrs.dst_layout} {elements}")
    with compiling.dispatch(pairs), TARGET, tvm.transform.PassContext(opt_level=3):
        altered = tvm.get_global_func("relay.backend.GetPassPrefixSeq")(True, False)(module)
    relay.analysis.post_order_visit(altered["main"].body, visit)
    return Counter(found)

groups = list(dict.fromkeys(each.group for each in network.operators if each.group))
told = []
for seed in range(4):
    random.seed(seed)
    pairs = []
    for (workload,) in groups:
        task = workloads.task(workload, TARGET)
        space = task.config_space
        # Seeds that agree more or less: with any block, or with 8 and 12 alone.
        places = [place for place in range(len(space)) if space.is_index_valid(place)]
        narrow = [p for p in places if set(graph_layout_reading.blocks(task.name, space.get(p))) <= {8, 12}]
        config = space.get(random.choice(narrow if narrow and seed % 2 else places))
        pairs.append((MeasureInput(TARGET, task, config), MeasureResult((1e-3,), 0, 0.0, 0.0)))
    recorded = graph_layout_reading.by_workload(pairs)
    states = {group: recorded[group[0]][0] for group in groups}
    expected, done = predicted(states), actual(pairs)
    told.append({"missing": sorted((done - expected).elements()), "extra": sorted((expected - done).elements()),
                 "same": sum((done & expected).values())})
print(json.dumps({"told": told, "kinds": Counter(each.kind for each in network.operators), "groups": len(groups)}))
"""


def test_transforms_are_those_that_alter_op_layout_inserts(tmp_path: Path) -> None:
    read = inside(BRANCHES, tmp_path)
    assert read["groups"] == 8
    assert read["kinds"]["chosen"] == 8
    assert read["kinds"]["joins"] == 1
    for told in read["told"]:
        assert told["missing"] == told["extra"] == []
    assert sum(told["same"] for told in read["told"]) > 20
