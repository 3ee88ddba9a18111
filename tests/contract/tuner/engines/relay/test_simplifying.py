"""The first passes, run once: the same build as TVM's own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.tuner.engines.relay.test_searching import inside_all

pytestmark = pytest.mark.engine

LAYOUTS = """
import numpy as np
from tuner.engines.relay import simplifying
from tvm import te, topi

def by_tvm(array, source, destination):
    given = te.placeholder(array.shape, name="given")
    moved = topi.layout_transform(given, source, destination)
    out = tvm.nd.empty([int(size) for size in moved.shape], "float32")
    tvm.build(te.create_prim_func([given, moved]), target="llvm")(tvm.nd.array(array), out)
    return out.numpy()

told = []
weights = np.arange(32 * 24 * 3 * 5, dtype="float32").reshape(32, 24, 3, 5)
for layout in ("OIHW4i16o", "OHWI", "OIHW16o", "HWIO8i", "OIHW8i8o"):
    expected = by_tvm(weights, "OIHW", layout)
    found = simplifying.relaid(weights, "OIHW", layout)
    told.append([layout, found.shape == expected.shape and bool((found == expected).all())])
refused = [
    ("OIHW16o", "OIHW", (2, 24, 3, 5, 16)), ("OIHW", "OIHW5i", (32, 24, 3, 5)), ("OIHW", "OHWI8i16o4i", (32, 64, 3, 3))
]
told += [simplifying.relaid(np.zeros(shape, "float32"), *layouts) for *layouts, shape in refused]
print(json.dumps(told))
"""
NARROW = """
import numpy as np
from tuner.engines.relay import simplifying
from tvm import relay

constant = tvm.nd.empty((32, 8), "bfloat16").copyfrom(np.arange(256, dtype="uint16").reshape(32, 8))
blocked = relay.layout_transform(relay.Constant(constant), "NC", "NC4n")
with tvm.transform.PassContext(opt_level=3, instruments=[simplifying.Folding()]):
    made = relay.transform.FoldConstant()(tvm.IRModule.from_expr(relay.Function([], blocked)))
print(json.dumps([type(made["main"].body).__name__, made["main"].body.data.dtype]))
"""
BUILDS = """
import numpy as np
from tuner.engines.relay import compiling, importing, simplifying
from tvm import relay
TARGET = targets.resolve(f"llvm -mcpu={native_cpu(tvm)}", 1)

def convolution(data, inputs, outputs, kernel, name):
    weights = relay.var(name, shape=(outputs, inputs, kernel, kernel))
    made = relay.nn.conv2d(data, weights, channels=outputs, kernel_size=(kernel, kernel), padding=(kernel // 2,) * 4)
    made = relay.nn.bias_add(made, relay.const(np.random.rand(outputs).astype("float32")))
    scale = relay.const(np.random.rand(1, outputs, 1, 1).astype("float32"))
    return relay.nn.relu(made * scale)

image = relay.var("image", shape=(1, 3, 16, 16))
first = convolution(image, 3, 24, 3, "w0")
second = convolution(first, 24, 24, 1, "w1") + convolution(first, 24, 24, 1, "w2")
last = relay.nn.dense(relay.nn.batch_flatten(second), relay.const(np.random.rand(5, 24 * 256).astype("float32")))
module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(last), last)))
params = {
    name: tvm.nd.array(np.random.rand(24, inputs, kernel, kernel).astype("float32"))
    for name, inputs, kernel in (("w0", 3, 3), ("w1", 24, 1), ("w2", 24, 1))
}
given = importing.Imported(module=module, params=params, inputs=("image",), outputs=("y",), operators={})
schedules = compiling.Schedules(dispatch=lambda: compiling.dispatch([]))
with compiling.dispatch([]), tvm.transform.PassContext(opt_level=3):
    plain = relay.build(module, target=TARGET, params=params)
ours, again = (
    compiling._build(given, TARGET, schedules, "shared", compiling.Workspaces(compiling.RELEASE)) for _ in range(2)
)

def weights(library):
    return {name: array.numpy().tobytes().hex() for name, array in library.get_params().items()}

told = [[made.get_graph_json() == plain.get_graph_json(), weights(made) == weights(plain)] for made in (ours, again)]
print(json.dumps([*told, len(weights(plain))]))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return inside_all(LAYOUTS, NARROW, BUILDS, folder=tmp_path_factory.mktemp("simplifying"))


def test_arrays_are_laid_out_as_tvm_does(told: list[Any]) -> None:
    *found, blocked, undivided, twice = told[0]
    assert all(equal for _, equal in found), found
    assert (blocked, undivided, twice) == (None, None, None)


def test_bfloat16_stays_what_it_is(told: list[Any]) -> None:
    """numpy has it as uint16."""
    assert told[1] == ["Constant", "bfloat16"]


def test_a_build_is_that_of_tvm(told: list[Any]) -> None:
    first, again, weights = told[2]
    assert first == again == [True, True]
    assert weights > 4
