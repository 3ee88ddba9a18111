"""Loops, fused and quantized operators and recurrent layers as plain operators, compared with ONNX Runtime's own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.tuner.engines.onnx import inside

pytestmark = pytest.mark.engine

_BUILD = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx import sessions
from tuner.engines.onnx.rewriting import applying

rng = np.random.default_rng(0)
weights = []

def weight(array):
    weights.append(numpy_helper.from_array(np.asarray(array), f"w{len(weights)}"))
    return weights[-1].name

def floats(*shape):
    return weight((rng.standard_normal(shape) * 0.4).astype(np.float32))

def bytes_(*shape, dtype="uint8"):
    limits = np.iinfo(dtype)
    return weight(rng.integers(limits.min, limits.max + 1, shape).astype(dtype))

def scale(*shape):
    return weight(rng.uniform(0.005, 0.02, shape).astype(np.float32))

def told_of(nodes, inputs, outputs, opset=17):
    info = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, shape)
    graph = helper.make_graph(nodes, "g", [info(*each) for each in inputs], [info(*each) for each in outputs], weights)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    weights.clear()
    fed = {}
    for name, kind, shape in inputs:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        fed[name] = rng.standard_normal(shape).astype(dtype) if kind == TensorProto.FLOAT else rng.integers(
            np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
    expected = sessions.run(sessions.open_session(model.SerializeToString(), threads=1), fed)
    done = applying.apply(model, 0, applying.PLAIN)
    actual = sessions.run(sessions.open_session(done.model.SerializeToString(), threads=1), fed)
    return {
        "applied": done.applied, "undone": done.undone,
        "operators": sorted({node.op_type for node in done.model.graph.node}),
        "domains": sorted({node.domain for node in done.model.graph.node}),
        "error": max(float(np.abs(expected[name] - actual[name].astype(float)).max()) for name in expected),
    }

F, U, I = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT32
told = []
"""

_RECURRENT = """
for opset in (14, 17, 22):
    for operator, gates, names in (("LSTM", 4, "ihc"), ("GRU", 3, "ih"), ("RNN", 1, "ih")):
        for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            for more in ({}, {"linear_before_reset": 1}, {"plain": True}, {"relu": True}):
                if (operator != "GRU" and "linear_before_reset" in more) or (operator != "RNN" and "relu" in more):
                    continue
                steps, batch, size, hidden = 5, 2, 3, 4
                inputs = ["x", floats(count, gates * hidden, size), floats(count, gates * hidden, hidden)]
                if not more.pop("plain", False):
                    inputs += [floats(count, 2 * gates * hidden), weight(np.full(batch, steps, np.int32))]
                    inputs += [floats(count, batch, hidden) for _ in names[1:]]
                if more.pop("relu", False):
                    more["activations"] = ["Relu"] * count
                outputs = ["y", "h", "c"][: len(names)]
                node = helper.make_node(operator, inputs, outputs, hidden_size=hidden, direction=direction, **more)
                shapes = [("y", F, [steps, count, batch, hidden])]
                shapes += [(name, F, [count, batch, hidden]) for name in outputs[1:]]
                told.append(told_of([node], [("x", F, [steps, batch, size])], shapes, opset))
"""

_LEFT = """
for more, lengths in (({"clip": 1.0}, 5), ({}, 4), ({"activations": ["Softsign", "Tanh", "Tanh"]}, 5)):
    inputs = ["x", floats(1, 16, 3), floats(1, 16, 4), "", weight(np.full(2, lengths, np.int32))]
    node = helper.make_node("LSTM", inputs, ["y"], hidden_size=4, **more)
    told.append(told_of([node], [("x", F, [5, 2, 3])], [("y", F, [5, 1, 2, 4])]))
"""

_QUANTIZED = """
def add(node, inputs, outputs):
    told.append({"operator": node.op_type, **told_of([node], inputs, outputs)})

image, made = [1, 3, 9, 9], [1, 8, 5, 5]
zero = lambda: bytes_()
signed = lambda *shape: weight(np.zeros(shape, np.int8))
for kernel_scale, bias in (((), False), ((8,), True)):
    inputs = ["x", scale(), zero(), bytes_(8, 3, 3, 3, dtype="int8"), scale(*kernel_scale), signed(*kernel_scale)]
    inputs += [weight(np.float32(1.7)), zero()]
    inputs += [weight(rng.integers(-9000, 9000, 8).astype(np.int32))] if bias else []
    add(helper.make_node("QLinearConv", inputs, ["y"], pads=[1, 1, 1, 1], strides=[2, 2]),
        [("x", U, image)], [("y", U, made)])
inputs = ["x", bytes_(8, 3, 3, 3), zero(), zero()]
add(helper.make_node("ConvInteger", inputs, ["y"], pads=[1, 1, 1, 1], strides=[2, 2]),
    [("x", U, image)], [("y", I, made)])
add(helper.make_node("MatMulInteger", ["x", bytes_(6, 5), zero(), bytes_(5)], ["y"]),
    [("x", U, [4, 6])], [("y", I, [4, 5])])
add(helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"]), [("x", F, [3, 50])],
    [("y", U, [3, 50]), ("s", F, []), ("z", U, [])])
inputs = ["x", scale(), zero(), bytes_(6, 5), scale(), zero(), weight(np.float32(0.3)), zero()]
add(helper.make_node("QLinearMatMul", inputs, ["y"]), [("x", U, [4, 6])], [("y", U, [4, 5])])
pair = [("x", U, image), ("z", U, image)]
both = lambda: ["x", scale(), zero(), "z", scale(), zero(), scale(), zero()]
for operator in ("QLinearAdd", "QLinearMul"):
    add(helper.make_node(operator, both(), ["y"], domain="com.microsoft"), pair, [("y", U, image)])
one = lambda: ["x", scale(), zero(), scale(), zero()]
for operator, more, shape in (("QLinearSigmoid", {}, image), ("QLinearLeakyRelu", {"alpha": 0.1}, image),
                              ("QLinearGlobalAveragePool", {}, [1, 3, 1, 1]),
                              ("QLinearAveragePool", {"kernel_shape": [3, 3], "strides": [3, 3]}, [1, 3, 3, 3])):
    add(helper.make_node(operator, one(), ["y"], domain="com.microsoft", **more), [("x", U, image)], [("y", U, shape)])
add(helper.make_node("QLinearConcat", [scale(), zero(), "x", scale(), zero(), "z", scale(), zero()], ["y"], axis=1,
    domain="com.microsoft"), pair, [("y", U, [1, 6, 9, 9])])
for ends in ([weight(np.float32(0.3)), zero()], []):
    inputs = ["x", scale(), zero(), bytes_(5, 6, dtype="int8"), scale(5), signed(5)]
    inputs += [weight(rng.integers(-99, 99, 5).astype(np.int32)), *ends]
    add(helper.make_node("QGemm", inputs, ["y"], transB=1, domain="com.microsoft"), [("x", U, [4, 6])],
        [("y", U if ends else F, [4, 5])])
for columns, ends in ((5, lambda: [bytes_(5), floats(5)]), ((), lambda: [bytes_()]), ((), list)):
    inputs = ["x", bytes_(6, 5), scale(5) if columns else scale(), *ends()]
    add(helper.make_node("DynamicQuantizeMatMul", inputs, ["y"], domain="com.microsoft"),
        [("x", F, [4, 6])], [("y", F, [4, 5])])
for bits, block, columns, ends in ((4, 16, 40, ()), (4, 16, 40, (3, 2)), (4, 32, 64, (3, 1)), (8, 16, 32, ())):
    count = -(-columns // block)
    inputs = ["x", bytes_(3, count, block * bits // 8), scale(3 * count)]
    inputs += [bytes_(ends[0] * ends[1])] if ends else []
    add(helper.make_node("MatMulNBits", inputs, ["y"], domain="com.microsoft", N=3, K=columns, bits=bits,
        block_size=block), [("x", F, [2, 5, columns])], [("y", F, [2, 5, 3])])
"""

_PAIRS = """
x_scale, w_scale, y_scale = (np.float32(value) for value in (0.02, 0.01, 0.06))
zero, none = np.uint8(120), np.int8(0)
inputs = lambda name, *values: [name, *map(weight, values)]
quantized, real, kernel = "QuantizeLinear", "DequantizeLinear", bytes_(8, 3, 3, 3, dtype="int8")
bias = weight(rng.integers(-900, 900, 8).astype(np.int32))
nodes = [
    helper.make_node(quantized, inputs("x", x_scale, zero), ["q"]),
    helper.make_node(real, inputs("q", x_scale, zero), ["r"]),
    helper.make_node(real, inputs(kernel, np.full(8, w_scale), np.zeros(8, np.int8)), ["k"], axis=0),
    helper.make_node(
        real, inputs(bias, np.full(8, x_scale * w_scale), np.zeros(8, np.int32)), ["b"], axis=0
    ),
    helper.make_node("Conv", ["r", "k", "b"], ["c"]),
    helper.make_node(quantized, inputs("c", y_scale, zero), ["d"]),
    helper.make_node(real, inputs("d", y_scale, zero), ["y"]),
]
told.append(told_of(nodes, [("x", F, [1, 3, 40, 40])], [("y", F, [1, 8, 38, 38])]))
"""

_DYNAMIC_LSTM = """
for direction, count in (("forward", 1), ("bidirectional", 2)):
    inputs = ["x", bytes_(count, 6, 32), bytes_(count, 8, 32), floats(count, 64), "", "", "", ""]
    inputs += [scale(count), bytes_(count), scale(count), bytes_(count)]
    node = helper.make_node(
        "DynamicQuantizeLSTM", inputs, ["y", "h"], hidden_size=8, direction=direction, domain="com.microsoft"
    )
    shapes = [("y", F, [5, count, 1, 8]), ("h", F, [count, 1, 8])]
    told.append(told_of([node], [("x", F, [5, 1, 6])], shapes))
"""


_LOOPS = """
info = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, shape)
B, L = TensorProto.BOOL, TensorProto.INT64

def loop(body_nodes, trips, condition, opset=17):
    body = helper.make_graph(
        [*body_nodes, helper.make_node("Identity", ["go"], ["goes"])], "body",
        [info("i", L, []), info("go", B, []), info("s", F, [2, 3])],
        [info("goes", B, []), info("next", F, [2, 3]), info("seen", F, [2, 3])], [own])
    node = helper.make_node("Loop", [trips, condition, "x"], ["y", "all"], body=body)
    told.append(told_of([node], [("x", F, [2, 3])], [("y", F, [2, 3]), ("all", F, [4, 2, 3])], opset))

own = numpy_helper.from_array(rng.standard_normal((3, 3)).astype(np.float32), "own")
step = lambda: [
    helper.make_node("Cast", ["i"], ["real"], to=F),
    helper.make_node("MatMul", ["s", "own"], ["product"]),
    helper.make_node("Add", ["product", "real"], ["moved"]),
    helper.make_node("Tanh", ["moved"], ["next"]),
    helper.make_node("Mul", ["next", floats(2, 3)], ["seen"]),
]
four, yes = lambda: weight(np.int64(4)), lambda: weight(np.bool_(True))
for opset in (11, 17):
    loop(step(), four(), yes(), opset)
# One inside another, which reads the values of the outer one.
deep = helper.make_graph(
    [helper.make_node("Add", ["t", "real"], ["more"]), helper.make_node("Identity", ["on"], ["goes_on"])], "inner",
    [info("j", L, []), info("on", B, []), info("t", F, [2, 3])], [info("goes_on", B, []), info("more", F, [2, 3])])
three = helper.make_node("Constant", [], ["three"], value=numpy_helper.from_array(np.int64(3)))
nested = [three, *step()[:3], helper.make_node("Loop", ["three", "", "moved"], ["sum"], body=deep),
          helper.make_node("Tanh", ["sum"], ["next"]), helper.make_node("Mul", ["next", "s"], ["seen"])]
loop(nested, four(), "")

def scan(directions, axis, made_axis):
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "part"], ["next"]), helper.make_node("Tanh", ["next"], ["seen"])], "body",
        [info("s", F, [2]), info("part", F, [2])], [info("next", F, [2]), info("seen", F, [2])])
    node = helper.make_node("Scan", ["x", "given"], ["y", "all"], body=body, num_scan_inputs=1,
                            scan_input_axes=[axis], scan_output_axes=[made_axis], scan_input_directions=[directions],
                            scan_output_directions=[1 - directions])
    shape = [5, 2] if axis == 0 else [2, 5]
    told.append(told_of([node], [("x", F, [2]), ("given", F, shape)],
                        [("y", F, [2]), ("all", F, [5, 2] if made_axis == 0 else [2, 5])]))

scan(0, 0, 1)
scan(1, -1, 0)
"""

_COUNTED = """
info = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, shape)
B, L, I = TensorProto.BOOL, TensorProto.INT64, TensorProto.INT32

def loop(trips, steps, condition):
    # As TensorFlow writes them: a counter of its own beside the loop's.
    nodes = [helper.make_node("Add", ["time", "one"], ["later"]), *condition,
             helper.make_node("Gather", ["x", "time"], ["row"]), helper.make_node("Add", ["s", "row"], ["next"]),
             helper.make_node("Tanh", ["next"], ["seen"])]
    body = helper.make_graph(
        nodes, "body", [info("i", L, []), info("go", B, []), info("time", I, []), info("s", F, [3])],
        [info("goes", B, []), info("later", I, []), info("next", F, [3]), info("seen", F, [3])],
        [numpy_helper.from_array(np.int32(1), "one"), numpy_helper.from_array(np.float32(4), "limit")])
    given = [weight(np.int64(trips)) if trips else "", weight(np.bool_(True)), weight(np.int32(0)), floats(3)]
    node = helper.make_node("Loop", given, ["t", "y", "all"], body=body)
    told.append(told_of([node], [("x", F, [9, 3])], [("y", F, [3]), ("all", F, [steps, 3])]))

below = [helper.make_node("Cast", ["later"], ["real"], to=F), helper.make_node("Less", ["real", "limit"], ["below"])]
both = [*below, helper.make_node("Cast", ["i"], ["number"], to=F),
        helper.make_node("Less", ["number", "limit"], ["less"]), helper.make_node("And", ["below", "less"], ["goes"])]
alone = [*below, helper.make_node("Identity", ["below"], ["goes"])]
loop(9, 4, both)
loop(3, 3, both)
loop(0, 4, alone)
"""


_ENDLESS = """
info = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, shape)
B, L = TensorProto.BOOL, TensorProto.INT64
def loop(trips, stops):
    nodes = [helper.make_node("Add", ["s", "x"], ["next"])]
    nodes += [helper.make_node("ReduceMax", ["next"], ["most"], keepdims=0),
              helper.make_node("Less", ["most", weight(np.float32(1e3))], ["goes"])] if stops else [
              helper.make_node("Identity", ["go"], ["goes"])]
    body = helper.make_graph(nodes, "body", [info("i", L, []), info("go", B, []), info("s", F, [3])],
                             [info("goes", B, []), info("next", F, [3])])
    node = helper.make_node("Loop", [weight(np.int64(trips)), "", "x"], ["y"], body=body)
    told.append(told_of([node], [("x", F, [3])], [("y", F, [3])]))

loop(5, True)
loop(1000, False)
"""


_FUSED = """
def one(operator, inputs, shape, domain="com.microsoft", opset=17, **attributes):
    node = helper.make_node(operator, [*inputs, *attributes.pop("weights", [])], ["y"], domain=domain, **attributes)
    given = [(name, F, size) for name, size in inputs.items()]
    told.append({"operator": operator, **told_of([node], given, [("y", F, shape)], opset)})

row, image = {"x": [2, 8]}, {"x": [1, 3, 8, 8]}
one("QuickGelu", row, [2, 8], alpha=1.5)
one("FusedMatMul", {"x": [2, 5, 8], "w": [2, 4, 8]}, [2, 5, 4], transB=1, alpha=0.5)
one("FusedMatMul", {"x": [8, 2], "w": [8, 4]}, [2, 4], transA=1)
one("FusedConv", image, [1, 4, 3, 3], weights=[floats(4, 3, 3, 3), floats(4)], strides=[2, 2], activation="LeakyRelu",
    activation_params=[0.2])
one("FusedGemm", row, [2, 4], weights=[floats(4, 8), floats(4)], transB=1, alpha=0.5, activation="Relu")
one("SkipSimplifiedLayerNormalization", {"x": [2, 3, 8], "s": [2, 3, 8]}, [2, 3, 8], weights=[floats(8), floats(8)])
one("SkipLayerNormalization", {"x": [2, 3, 8], "s": [2, 3, 8]}, [2, 3, 8], weights=[floats(8), floats(8), floats(8)])
one("SkipLayerNormalization", {"x": [2, 3, 8], "s": [2, 3, 8]}, [2, 3, 8], weights=[floats(8)], epsilon=1e-3)
one("BiasGelu", row, [2, 8], weights=[floats(8)])
one("FastGelu", row, [2, 8], weights=[floats(8)])
one("Gelu", row, [2, 8])
for opset in (17, 22):
    for axis, p in ((-1, 2), (1, 1)):
        one("LpNormalization", {"x": [2, 5, 8]}, [2, 5, 8], "", opset, axis=axis, p=p)
for kind in (F, TensorProto.DOUBLE):
    nodes = [helper.make_node("Mul", ["x", weight(np.float32([[1], [0], [1]]))], ["m"]),
             helper.make_node("Cast", ["m"], ["c"], to=kind), helper.make_node("LpNormalization", ["c"], ["y"])]
    told.append({"operator": "LpNormalization", **told_of(nodes, [("x", F, [3, 8])], [("y", kind, [3, 8])])})
for corners in (0, 1):
    one("AffineGrid", {"x": [2, 2, 3]}, [2, 4, 5, 2], "", 20, weights=[weight(np.array([2, 3, 4, 5]))],
        align_corners=corners)
    one("AffineGrid", {"x": [2, 3, 4]}, [2, 4, 5, 6, 3], "", 20, weights=[weight(np.array([2, 3, 4, 5, 6]))],
        align_corners=corners)
one("SimplifiedLayerNormalization", {"x": [2, 3, 8]}, [2, 3, 8], "", weights=[floats(8)], axis=-1, epsilon=1e-3)
one("Gelu", row, [2, 8], "", 20, approximate="tanh")
one("RMSNormalization", {"x": [2, 3, 8]}, [2, 3, 8], "", 23, weights=[floats(8)], epsilon=1e-3)
one("RMSNormalization", {"x": [2, 3, 8]}, [2, 3, 8], "", 23, weights=[floats(3, 8)], axis=1)
"""

_EXPLICIT = """
L = TensorProto.INT64
def one(operator, inputs, shape, opset=17, before=(), kind=F, weights=(), given="x", **attributes):
    node = helper.make_node(operator, [given, *weights], ["y"], **attributes)
    told.append({"operator": operator, **told_of([*before, node], inputs, [("y", kind, shape)], opset)})

image = [("x", F, [1, 3, 9, 8])]
for side in ("SAME_UPPER", "SAME_LOWER"):
    same = {"auto_pad": side, "kernel_shape": [3, 4], "strides": [2, 1]}
    one("Conv", image, [1, 4, 5, 8], weights=[floats(4, 3, 3, 4)], **same)
    one("MaxPool", image, [1, 3, 5, 8], **same)
    for inside in (0, 1):
        one("AveragePool", image, [1, 3, 5, 8], count_include_pad=inside, **same)
one("Pad", image, [1, 3, 12, 8], 18, weights=[weight(np.array([1, 2])), "", weight(np.array([-2]))], mode="reflect")
number = lambda value: weight(np.int64(value))
for axis in (-1, 0):
    before = [helper.make_node("Cast", ["x"], ["whole"], to=L), helper.make_node("Mod", ["whole", number(7)], ["part"]),
              helper.make_node("Sub", ["part", number(3)], ["place"])]
    values = weight(np.array([-1, 2], np.float32))
    one("OneHot", [("x", U, [3, 4])], [3, 4, 5] if axis else [5, 3, 4], before=before, given="place",
        weights=[number(5), values], axis=axis)
one("Cast", image, [1, 3, 9, 8], 22, kind=TensorProto.INT32, to=TensorProto.INT32, saturate=1)
one("Celu", image, [1, 3, 9, 8], alpha=0.4)
one("PRelu", image, [1, 3, 9, 8], weights=[floats(1, 1, 1)])
node = helper.make_node("Split", ["x"], ["a", "y"], axis=2, num_outputs=2)
told.append({"operator": "Split", **told_of([node], image, [("a", F, [1, 3, 5, 8]), ("y", F, [1, 3, 4, 8])], 18)})
one("Split", image, [1, 3, 9, 8], weights=[weight(np.array([9]))], axis=2)
for length in (9, 4):
    one("ReverseSequence", [("x", F, [9, 2, 3])], [9, 2, 3], weights=[weight(np.array([length] * 2))], time_axis=0,
        batch_axis=1)
one("Dropout", image, [1, 3, 9, 8], seed=3)
node = helper.make_node("LayerNormalization", ["x", floats(9, 8), floats(9, 8)], ["y", "m", "d"], axis=2, epsilon=1e-3)
shapes = [("y", F, [1, 3, 9, 8]), ("m", F, [1, 3, 1, 1]), ("d", F, [1, 3, 1, 1])]
told.append({"operator": "LayerNormalization", **told_of([node], image, shapes)})
one("EyeLike", [("x", F, [3, 5])], [3, 5], kind=L, k=1, dtype=L)
rest = [number(2**63 - 1), weight(np.float32(0.3)), weight(np.float32(0.1))]
one("NonMaxSuppression", [("x", F, [1, 6, 4]), ("z", F, [1, 2, 6])], ["n", 3], kind=L, weights=["z", *rest])
"""

_EINSUM = """
letters = "abcde"
sizes = dict(zip(letters, (2, 3, 4, 1, 5)))
pick = lambda most: "".join(rng.permutation(list(letters))[: rng.integers(1, most + 1)])
cases = ["ij,jk", "ab,bc->ca", "bhlk,bhtk->bhlt", "bhlt,bhtv->blhv", "a,a", "a,b->ba", "...ab,...bc->...ac", "abc->",
         "ba", "a...,...a->...", "abc,bcd->ad", "...a->a..."]
for _ in range(80):
    one, other = pick(4), pick(4)
    terms = [one] if rng.integers(4) == 0 else [one, other]
    every = sorted(set("".join(terms)))
    result = "".join(rng.permutation(every)[: rng.integers(0, len(every) + 1)])
    cases.append(",".join(terms) + "->" + result)
sizes |= dict(zip("hijkltv", (2, 3, 4, 5, 3, 2, 4)))
for equation in cases:
    terms = equation.split("->")[0].split(",")
    shapes = [[size for each in term.replace("...", "xy") for size in ([sizes[each]] if each in sizes else [2])]
              for term in terms]
    named = [(f"t{place}", F, shape) for place, shape in enumerate(shapes)]
    node = helper.make_node("Einsum", [name for name, *_ in named], ["y"], equation=equation)
    made = np.einsum(equation, *(np.zeros(shape) for shape in shapes)).shape
    told.append({"operator": equation, **told_of([node], named, [("y", F, made)])})
for equation in ("aab->ab", "ab,ba,a->b"):
    terms = equation.split("->")[0].split(",")
    named = [(f"t{place}", F, [2 for _ in term]) for place, term in enumerate(terms)]
    node = helper.make_node("Einsum", [name for name, *_ in named], ["y"], equation=equation)
    made = [2 for _ in equation.split("->")[1]]
    told.append({"operator": "left", **told_of([node], named, [("y", F, made)])})
"""

_ATTENTION = """
B, L = TensorProto.BOOL, TensorProto.INT64

def one(operator, inputs, outputs, domain="", opset=23, kinds=None, **attributes):
    node = helper.make_node(operator, inputs, list(outputs), domain=domain, **attributes)
    given = [(name, (kinds or {}).get(name, F), shapes[name]) for name in inputs if name in shapes]
    made = [(name, F, shape) for name, shape in outputs.items()]
    told.append({"operator": operator, **told_of([node], given, made, opset)})

by_head = {"q": [2, 4, 3, 8], "k": [2, 4, 5, 8], "v": [2, 4, 5, 6]}
shapes = {**by_head, "m": [3, 5], "n": [2, 1, 3, 5]}
out = {"y": [2, 4, 3, 6]}
some = lambda *shape: weight(np.tril(np.ones(shape, np.bool_), 1))
one("Attention", ["q", "k", "v"], out)
one("Attention", ["q", "k", "v"], out, is_causal=1)
one("Attention", ["q", "k", "v", "m"], out, scale=0.3)
one("Attention", ["q", "k", "v", "n"], out, softcap=2.0)
one("Attention", ["q", "k", "v", some(3, 5)], out)
shapes |= {"k": [2, 2, 5, 8], "v": [2, 2, 5, 8], "p": [2, 2, 4, 8], "o": [2, 2, 4, 8]}
one("Attention", ["q", "k", "v"], {"y": [2, 4, 3, 8]})
one("Attention", ["q", "k", "v", "", "p", "o"], {"y": [2, 4, 3, 8], "a": [2, 2, 9, 8], "b": [2, 2, 9, 8]})
shapes |= {"q": [2, 3, 32], "k": [2, 5, 32], "v": [2, 5, 32]}
one("Attention", ["q", "k", "v", some(2, 1, 3, 5)], {"y": [2, 3, 32]}, q_num_heads=4, kv_num_heads=4, is_causal=1)

contrib, out = "com.microsoft", {"y": [2, 3, 32]}
heads = lambda inputs, made, **more: one("MultiHeadAttention", inputs, made, contrib, 17, num_heads=4, **more)
heads(["q", "k", "v"], out)
heads(["q", "k", "v", floats(96)], out, scale=0.3)
keys = lambda: weight(np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32))
heads(["q", "k", "v", "", keys()], out, mask_filter_value=-50.0)
heads(["q", "k", "v", "", weight(np.tril(np.ones((2, 3, 5), np.int32), 1))], out)
shapes |= {"m": [2, 4, 3, 5]}
heads(["q", "k", "v", "", "", "m"], out)
shapes |= {"k": [2, 3, 32], "v": [2, 3, 32], "p": [2, 4, 4, 8], "o": [2, 4, 4, 8]}
heads(["q", "k", "v"], out, unidirectional=1)
heads(["q", "k", "v", "", "", "", "p", "o"], {"y": [2, 3, 32], "a": [2, 4, 7, 8], "b": [2, 4, 7, 8]})

project = lambda inputs, made, **more: one("Attention", inputs, made, contrib, 17, num_heads=4, **more)
matrices = lambda: [floats(32, 96), floats(96)]
project(["q", *matrices()], out)
project(["q", *matrices(), weight(np.array([[1, 1, 0], [1, 1, 1]], np.int32))], out)
project(["q", *matrices(), weight(np.array([2, 3], np.int32))], out, scale=0.4)
project(["q", *matrices()], out, unidirectional=1)
shapes |= {"m": [2, 4, 3, 3], "p": [2, 2, 4, 4, 8]}
project(["q", *matrices(), "", "", "m"], out)
project(["q", *matrices(), "", "p"], {"y": [2, 3, 32], "a": [2, 2, 4, 7, 8]}, unidirectional=1)
project(["q", floats(32, 80), floats(80)], {"y": [2, 3, 16]}, qkv_hidden_sizes=[32, 32, 16])

shapes = {"q": [2, 3, 32], "x": [2, 4, 3, 8]}
places = lambda: weight(np.array([[0, 1, 2], [5, 3, 9]]))
for interleaved in (0, 1):
    more = {"interleaved": interleaved}
    for name, counted in (("q", {"num_heads": 4}), ("x", {})):
        one("RotaryEmbedding", [name, floats(10, 4), floats(10, 4), places()], {"y": shapes[name]}, **counted, **more)
        given = [name, floats(2, 3, 2), floats(2, 3, 2)]
        one("RotaryEmbedding", given, {"y": shapes[name]}, rotary_embedding_dim=4, **counted, **more)
        for start in (places, lambda: weight(np.array([4]))):
            given = [name, start(), floats(10, 4), floats(10, 4)]
            one("RotaryEmbedding", given, {"y": shapes[name]}, contrib, 17, **more)
"""

_PATCHES = """
L = TensorProto.INT64
pair = lambda *values: weight(np.array(values))
for attributes, image, block, count in (
    ({}, (5, 5), (5, 1), 5),
    ({"strides": [2, 2]}, (6, 7), (3, 3), 2 * 3),
    ({"pads": [1, 0, 1, 2], "dilations": [1, 2]}, (5, 6), (3, 3), 5 * 4),
):
    node = helper.make_node("Col2Im", ["x", pair(*image), pair(*block)], ["y"], **attributes)
    patches = [2, 3 * block[0] * block[1], count]
    told.append(told_of([node], [("x", F, patches)], [("y", F, [2, 3, *image])], 18))
for attributes, made, more in (({}, (7, 6), 1), ({"pads": [1, 1, 1, 1], "strides": [2, 1]}, (5, 8), 2),
                               ({"dilations": [2, 1], "group": 2, "offset_group": 2}, (5, 6), 2)):
    group, groups = attributes.get("group", 1), attributes.get("offset_group", 1)
    inputs = ["x", floats(8, 4 // group, 3, 3), "o", *([floats(8), "m"] if more == 2 else [])]
    given = [("x", F, [2, 4, 9, 8]), ("o", F, [2, 18 * groups, *made])]
    given += [("m", F, [2, 9 * groups, *made])] if more == 2 else []
    node = helper.make_node("DeformConv", inputs, ["y"], **attributes)
    told.append(told_of([node], given, [("y", F, [2, 8, *made])], 22))
"""

_RESIZED = """
def one(scales, sizes, made, shape=(1, 2, 8, 6), opset=18, region=None, **attributes):
    inputs = ["x", weight(np.array(region, np.float32)) if region else ""]
    inputs += [weight(np.array(scales, np.float32)) if scales else "", weight(np.array(sizes)) if sizes else ""]
    node = helper.make_node("Resize", inputs, ["y"], **attributes)
    told.append({"attributes": repr(attributes), **told_of([node], [("x", F, shape)], [("y", F, made)], opset)})

scaled = (1, 1, 0.45, 1.3)
for places in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric"):
    opset = 19 if places == "half_pixel_symmetric" else 13
    more = {"coordinate_transformation_mode": places, "opset": opset}
    for rounded in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        one(scaled, None, [1, 2, 3, 7], mode="nearest", nearest_mode=rounded, **more)
    one((1, 1, 0.13, 1.3), None, [1, 2, 1, 7], mode="linear", **more)
    for outside in (0, 1) if places != "align_corners" else ():
        one(scaled, None, [1, 2, 3, 7], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=outside, **more)
for mode in ("linear", "cubic"):
    for outside in (0, 1):
        one(scaled, None, [1, 2, 3, 7], mode=mode, antialias=1, exclude_outside=outside)
    one(None, (1, 2, 3, 9), [1, 2, 3, 9], mode=mode, antialias=1, coordinate_transformation_mode="align_corners")
for mode in ("nearest", "linear"):
    for policy in ("not_larger", "not_smaller"):
        one(None, (4, 7), [1, 2, *((4, 3) if policy == "not_larger" else (9, 7))], mode=mode, axes=[2, 3],
            keep_aspect_ratio_policy=policy)
for mode in ("nearest", "linear", "cubic"):
    more = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.5}
    one(None, (3, 5), [1, 2, 3, 5], mode=mode, region=[0.2, 0.4, 0.9, 1.3], axes=[2, 3], **more)
one((2,), None, [1, 2, 8, 12], mode="nearest", axes=[-1], nearest_mode="floor",
    coordinate_transformation_mode="asymmetric")
one(None, (4, 6, 10), [1, 2, 4, 6, 10], (1, 2, 3, 4, 5), mode="linear", axes=[2, 3, 4])
"""

_NATIVE = """
inputs = ["x", "", weight(np.array([1, 1, 2, 3], np.float32))]
for more in ({"mode": "linear"}, {"mode": "cubic"}, {"mode": "nearest"}, {"mode": "linear", "antialias": 1},
             {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}):
    held = list(weights)
    node = helper.make_node("Resize", inputs, ["y"], **more)
    told.append(told_of([node], [("x", F, [1, 2, 4, 5])], [("y", F, [1, 2, 8, 15])], 18))
    weights.extend(held)
weights.clear()
inputs = ["x", weight(np.array([1, 1, 2, 2], np.float32))]
node = helper.make_node("Upsample", inputs, ["y"], mode="nearest")
told.append(told_of([node], [("x", F, [1, 2, 4, 5])], [("y", F, [1, 2, 8, 10])], 9))
"""

_REDUCTIONS = """
B = TensorProto.BOOL
def one(operator, shape, made, axes=None, **attributes):
    inputs = ["x", *([weight(np.array(axes))] if axes is not None else [])]
    node = helper.make_node(operator, inputs, ["r"], **attributes)
    # No logarithms of negative numbers.
    nodes = [helper.make_node("Exp", ["z"], ["x"]), node, helper.make_node("Identity", ["r"], ["y"])]
    told.append(told_of(nodes, [("z", F, shape)], [("y", F, made)], 22))

for operator in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"):
    one(operator, [2, 3, 4], [2, 1, 4], [1])
    one(operator, [2, 3, 4], [2], [-1, 1], keepdims=0)
for operator in ("ReduceL2", "ReduceLogSumExp", "ReduceMean", "ReduceSum", "ReduceMax"):
    one(operator, [2, 3, 4], [1, 1, 1])
    one(operator, [2, 3, 4], [], keepdims=0)
for operator in ("ReduceMax", "ReduceMin"):
    nodes = [helper.make_node("Less", ["x", floats(1)], ["t"]), helper.make_node(operator, ["t"], ["y"])]
    told.append(told_of(nodes, [("x", F, [2, 3])], [("y", B, [1, 1])], 20))
"""

_SPECTRA = """
scalar = lambda value: weight(np.int64(value))
def one(operator, inputs, shape, made, opset=20, **attributes):
    node = helper.make_node(operator, inputs, ["y"], **attributes)
    told.append(told_of([node], [("x", F, shape)], [("y", F, made)], opset))

for opset in (17, 20):
    place = lambda axis: ({"axis": axis}, []) if opset == 17 else ({}, ["", scalar(axis)])
    for axis, shape, made in ((1, [2, 10, 3, 1], [2, 10, 3, 2]), (2, [2, 3, 9, 2], [2, 3, 9, 2])):
        for inverse in (0, 1):
            attributes, more = place(axis)
            one("DFT", ["x", *more], shape, made, opset, inverse=inverse, **attributes)
    one("DFT", ["x", *place(1)[1]], [2, 10, 1], [2, 6, 2], opset, onesided=1)
one("STFT", ["x", scalar(4), weight(np.hanning(16).astype(np.float32)), scalar(16)], [2, 50, 1], [2, 9, 9, 2], 17)
one("STFT", ["x", scalar(5), "", scalar(16)], [2, 50, 1], [2, 7, 16, 2], 17, onesided=0)
"""

_ASSIGNED = """
def one(shape, places, negative=False, opset=17, spoil=lambda indices: None, **attributes):
    indices = np.stack(np.meshgrid(*places, indexing="ij"), -1).astype(np.int64)
    made = [*indices.shape[:-1], *shape[len(places):]]
    indices -= np.array(shape[:len(places)]) * negative
    spoil(indices)
    node = helper.make_node("ScatterND", ["x", weight(indices), "u"], ["y"], **attributes)
    told.append(told_of([node], [("x", F, shape), ("u", F, made)], [("y", F, shape)], opset))

one([2, 3, 4], [range(2), range(3), range(4)])
one([2, 3, 4], [range(2), range(1, 3)])
one([2, 3, 4], [range(2), range(3), range(2)], opset=11)
one([5, 6, 7, 2], [range(1, 4), range(2, 6), range(3, 4)])
one([5, 6], [range(4, 5), range(1, 3)], negative=True)
one([6], [range(0, 6, 2)])
one([6], [[4, 3, 2]])
one([6, 2], [range(1, 4)], reduction="add")
one([4, 4], [range(2), range(2)], spoil=lambda indices: indices[0].fill(0))
"""

_BLOCKED = """
zeros = lambda *shape: weight(rng.integers(100, 150, shape).astype(np.uint8))
for axis, shape in ((0, (3, 6)), (1, (8, 2))):
    block = 3
    node = helper.make_node("DequantizeLinear", ["x", scale(*shape), zeros(*shape)], ["y"], axis=axis, block_size=block)
    told.append(told_of([node], [("x", U, [8, 6])], [("y", F, [8, 6])], 21))
    node = helper.make_node("QuantizeLinear", ["x", scale(*shape), zeros(*shape)], ["y"], axis=axis, block_size=block)
    told.append(told_of([node], [("x", F, [8, 6])], [("y", U, [8, 6])], 21))
    given = [bytes_(8, 6), scale(*shape), zeros(*shape)]
    nodes = [helper.make_node("DequantizeLinear", given, ["w"], axis=axis, block_size=block),
             helper.make_node("MatMul", ["x", "w"], ["y"])]
    told.append(told_of(nodes, [("x", F, [4, 8])], [("y", F, [4, 6])], 21))
"""

_TYPED = """
for kind in (U, TensorProto.INT8, TensorProto.INT16):
    node = helper.make_node("QuantizeLinear", ["x", scale()], ["y"], output_dtype=kind)
    told.append(told_of([node], [("x", F, [8, 6])], [("y", kind, [8, 6])], 21))
"""

_SUMS = """
for kinds in ((F,), (F, I), (TensorProto.DOUBLE,)):
    for operator, given, shape, size in (("ConvInteger", [1, 3, 9, 9], [1, 8, 7, 7], (8, 3, 3, 3)),
                                         ("MatMulInteger", [4, 6], [4, 5], (6, 5))):
        factor = np.array(0.01, helper.tensor_dtype_to_np_dtype(kinds[0]))
        nodes = [helper.make_node(operator, ["x", bytes_(*size), bytes_(), bytes_()], ["sum"]),
                 helper.make_node("Cast", ["sum"], ["real"], to=kinds[0]),
                 helper.make_node("Mul", ["real", weight(factor)], ["y"])]
        outputs = [("y", kinds[0], shape)] + [("sum", I, shape)] * (len(kinds) - 1)
        told.append(told_of(nodes, [("x", U, given)], outputs))
"""

_OLD = """
zero = lambda: bytes_()
inputs = ["x", scale(), zero(), bytes_(8, 3, 3, 3), scale(), zero(), weight(np.float32(1.7)), zero()]
node = helper.make_node("QLinearConv", inputs, ["y"], auto_pad="SAME_UPPER")
told.append(told_of([node], [("x", U, [1, 3, 9, 9])], [("y", U, [1, 8, 9, 9])], 10))
node = helper.make_node("ConvInteger", ["x", bytes_(8, 3, 3, 3), zero(), zero()], ["y"])
told.append(told_of([node], [("x", U, [1, 3, 9, 9])], [("y", I, [1, 8, 7, 7])], 10))
inputs = ["x", scale(), zero(), bytes_(6, 5), scale(), zero(), weight(np.float32(0.3)), zero()]
node = helper.make_node("QLinearMatMul", inputs, ["y"])
told.append(told_of([node], [("x", U, [4, 6])], [("y", U, [4, 5])], 10))
"""


def _told(program: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = inside.run(_BUILD + program)
    assert found
    assert not [each for each in found if each["undone"]]
    return found


def test_sums_of_bytes_become_real_numbers_without_being_integers() -> None:
    networks = _told(_SUMS)
    assert max(network["error"] for network in networks) < 1e-6
    assert ["Round" in network["operators"] for network in networks] == [True] * 4 + [False] * 2


def test_recurrent_layers_become_steps() -> None:
    for layer in _told(_RECURRENT):
        assert layer["applied"] == {"recurrent": 1}
        assert not {"LSTM", "GRU", "RNN"} & set(layer["operators"])
        assert layer["error"] < 1e-5


def test_layers_with_clipping_or_shorter_sequences_are_left() -> None:
    assert [(layer["applied"], layer["operators"]) for layer in _told(_LEFT)] == [({}, ["LSTM"])] * 3


def test_loops_become_their_iterations() -> None:
    loops = _told(_LOOPS)
    assert [loop["applied"] for loop in loops] == [{"loops": 1}] * 2 + [{"loops": 5}] + [{"loops": 1}] * 2
    for loop in loops:
        assert not {"Loop", "Scan"} & set(loop["operators"])
        assert loop["error"] < 1e-6


def test_loops_that_counters_end_become_their_iterations() -> None:
    for loop in _told(_COUNTED):
        assert loop["applied"]["loops"] == 1
        assert "Loop" not in loop["operators"]
        assert loop["error"] < 1e-6


def test_loops_that_may_end_early_or_are_long_are_left() -> None:
    assert [(loop["applied"], loop["operators"]) for loop in _told(_ENDLESS)] == [({}, ["Loop"])] * 2


def test_fused_operators_become_what_they_stand_for() -> None:
    for operator in _told(_FUSED):
        assert operator["applied"]["fused"] == 1, operator
        assert operator["domains"] == [""]
        assert operator["operator"] not in operator["operators"]
        assert operator["error"] < 1e-5, operator


def test_operators_get_their_explicit_forms() -> None:
    for operator in _told(_EXPLICIT):
        assert operator["applied"] == {"explicit": 1}, operator
        assert operator["error"] < 1e-5, operator
        assert operator["operator"] != "OneHot" or "OneHot" not in operator["operators"]


def test_attention_becomes_products() -> None:
    for each in _told(_ATTENTION):
        assert each["applied"] == {"attention": 1}, each
        assert each["domains"] == [""]
        assert each["operator"] not in each["operators"]
        assert each["error"] < 1e-5, each


def test_operators_on_patches_become_convolutions() -> None:
    for each in _told(_PATCHES):
        assert each["applied"] == {"patches": 1}, each
        assert each["error"] < 1e-4, each


def test_images_are_resized_by_matrices_and_indices() -> None:
    for each in _told(_RESIZED):
        assert each["applied"] == {"resized": 1}, each
        assert each["error"] < 1e-4, each


def test_sizes_that_every_importer_reads_stay() -> None:
    *plain, antialiased, asymmetric, old = _told(_NATIVE)
    assert [each["applied"] for each in plain] == [{}] * 3
    assert (antialiased["applied"], antialiased["operators"]) == ({"resized": 1}, ["Resize"])
    assert asymmetric["applied"] == {}
    assert (old["applied"], old["operators"]) == ({"upgraded": 1}, ["Resize"])


def test_reductions_get_axes_and_become_sums() -> None:
    for each in _told(_REDUCTIONS):
        assert each["applied"] == {"reductions": 1}, each
        assert not {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"} & set(each["operators"])
        assert each["error"] < 1e-4, each


def test_fourier_transforms_become_products() -> None:
    for each in _told(_SPECTRA):
        assert each["applied"] == {"spectra": 1}, each
        assert not {"DFT", "STFT"} & set(each["operators"])
        assert each["error"] < 1e-4, each


def test_blocks_with_scales_of_their_own_become_plain() -> None:
    for each in _told(_BLOCKED):
        assert each["applied"] == {"quantized": 1}, each
        assert not {"DequantizeLinear", "QuantizeLinear"} & set(each["operators"])
        assert each["error"] < 1e-4, each


def test_a_quantization_without_a_zero_point_has_the_type_of_its_attribute() -> None:
    *bytes_, wide = _told(_TYPED)
    assert [(each["applied"], each["error"]) for each in bytes_] == [({"quantized": 1}, 0)] * 2
    assert wide["applied"] == {}


def test_quantized_operators_of_old_operator_sets_are_upgraded() -> None:
    for each in _told(_OLD):
        assert each["applied"] == {"upgraded": 1, "quantized": 1}, each
        assert not [name for name in each["operators"] if "Linear" in name or "Integer" in name]
        assert each["error"] == 0, each


def test_quantized_operators_become_float_ones_that_compute_the_same_integers() -> None:
    for operator in _told(_QUANTIZED):
        assert operator["applied"]["quantized"] == 1, operator
        assert operator["domains"] == [""]
        assert operator["error"] < 1e-4, operator


def test_what_stands_between_pairs_is_computed_in_integers() -> None:
    (network,) = _told(_PAIRS)
    assert network["error"] == 0
    assert {"QuantizeLinear", "DequantizeLinear"}.isdisjoint(network["operators"])
    assert "Round" in network["operators"]


def test_a_dynamically_quantized_lstm_becomes_steps() -> None:
    for layer in _told(_DYNAMIC_LSTM):
        assert layer["applied"] == {"recurrent": 1}
        assert layer["domains"] == [""]
        assert layer["error"] < 1e-5


def test_assignments_to_slices_become_concatenations() -> None:
    *slices, apart, reversed_, summed, twice = _told(_ASSIGNED)
    for each in slices:
        assert each["applied"] == {"assigned": 1}, each
        assert "ScatterND" not in each["operators"]
        assert each["error"] == 0
    assert [each["applied"] for each in (apart, reversed_, summed, twice)] == [{}] * 4


def test_einsum_is_products_and_sums() -> None:
    for each in inside.run(_BUILD + _EINSUM):
        assert ("Einsum" in each["operators"]) == (each["operator"] == "left"), each
        assert each["undone"] == {}, each
        assert each["error"] < 1e-4, each
