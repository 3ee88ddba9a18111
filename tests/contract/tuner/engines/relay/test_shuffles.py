from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.tuner.engines.relay.test_searching import inside

pytestmark = pytest.mark.engine

NETWORK = """
import numpy as np
from tuner.engines.relay import fast_math
from tvm import relay
from tvm.contrib import graph_executor
TARGET = targets.resolve(f"llvm -mcpu={native_cpu(tvm)}", 1)

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


def test_shuffles_of_channels_end_a_kernel_after_their_padding(tmp_path: Path) -> None:
    plain, filled, other = inside(NETWORK, tmp_path)
    assert plain == [1, 2, True]
    assert filled == [1, 2, True]
    assert other == [1, 1, True]
