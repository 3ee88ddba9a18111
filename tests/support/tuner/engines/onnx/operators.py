"""Models of operators that people's networks have; several share a model, so that an engine builds few.

Requires the onnx engine's environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NAMES = ("recurrent", "dynamic", "loops", "resized", "sampled", "einsum", "normalized", "quantized", "attention")
_FLOAT, _UINT8, _INT32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT32
_CONTRIB = "com.microsoft"
_Value = tuple[str, int, Sequence[int]]


class _Model:
    def __init__(self, *inputs: _Value, opset: int = 20) -> None:
        self._random = np.random.default_rng(0)
        self._opset = opset
        self._inputs = inputs
        self._outputs: list[_Value] = []
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def weight(self, values: Any, dtype: Any = np.float32) -> str:
        self._weights.append(numpy_helper.from_array(np.asarray(values, dtype), f"w{len(self._weights)}"))
        return str(self._weights[-1].name)

    def floats(self, *shape: int) -> str:
        return self.weight(self._random.standard_normal(shape) * 0.4)

    def bytes_(self, *shape: int) -> str:
        return self.weight(self._random.integers(0, 256, shape), np.uint8)

    def scale(self, *shape: int) -> str:
        return self.weight(self._random.uniform(0.005, 0.02, shape))

    def add(self, operator: str, inputs: Sequence[str], *shapes: Sequence[int], kind: int = _FLOAT, **more: Any) -> str:
        """Add a node whose outputs, of these shapes, are outputs of the model; return the first."""
        names = [f"y{len(self._outputs) + place}" for place in range(len(shapes))]
        self._nodes.append(helper.make_node(operator, inputs, names, **more))
        self._outputs += [(name, kind, shape) for name, shape in zip(names, shapes, strict=True)]
        return names[0]

    def save(self, path: Path) -> None:
        graph = helper.make_graph(
            self._nodes,
            path.stem,
            [helper.make_tensor_value_info(*each) for each in self._inputs],
            [helper.make_tensor_value_info(*each) for each in self._outputs],
            self._weights,
        )
        imports = [helper.make_opsetid("", self._opset), helper.make_opsetid(_CONTRIB, 1)]
        onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)


def recurrent() -> _Model:
    steps, batch, size, hidden = 3, 2, 3, 4
    made = _Model(("x", _FLOAT, (steps, batch, size)))

    def layer(operator: str, gates: int, direction: str, **more: Any) -> None:
        count = 2 if direction == "bidirectional" else 1
        inputs = ["x", made.floats(count, gates * hidden, size), made.floats(count, gates * hidden, hidden)]
        inputs += [made.floats(count, 2 * gates * hidden), "", made.floats(count, batch, hidden)]
        last = [(count, batch, hidden)] * (2 if operator == "LSTM" else 1)
        whole = (steps, count, batch, hidden)
        made.add(operator, inputs, whole, *last, hidden_size=hidden, direction=direction, **more)

    layer("LSTM", 4, "bidirectional")
    layer("GRU", 3, "bidirectional")
    layer("GRU", 3, "reverse", linear_before_reset=1)
    layer("RNN", 1, "bidirectional")
    layer("RNN", 1, "reverse", activations=["Relu"])
    return made


def dynamic() -> _Model:
    """A ``DynamicQuantizeLSTM`` in both directions."""
    made = _Model(("x", _FLOAT, (2, 1, 6)), opset=17)
    inputs = ["x", made.bytes_(2, 6, 32), made.bytes_(2, 8, 32), made.floats(2, 64), "", "", "", ""]
    inputs += [made.scale(2), made.bytes_(2), made.scale(2), made.bytes_(2)]
    shapes = (2, 2, 1, 8), (2, 1, 8)
    made.add("DynamicQuantizeLSTM", inputs, *shapes, hidden_size=8, direction="bidirectional", domain=_CONTRIB)
    return made


def loops() -> _Model:
    """A ``Loop`` of four iterations, a ``Scan``, and an ``If`` whose condition is a constant."""
    made = _Model(("x", _FLOAT, (4, 3)))
    info = helper.make_tensor_value_info
    state, seen, part = info("s", _FLOAT, (4, 3)), info("seen", _FLOAT, (4, 3)), info("part", _FLOAT, (3,))
    steps = [helper.make_node("Tanh", ["s"], ["t"]), helper.make_node("Add", ["t", "x"], ["next"])]
    ends = [helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("Identity", ["t"], ["seen"])]
    counted = [info("i", TensorProto.INT64, ()), info("go", TensorProto.BOOL, ()), state]
    left = [info("goes", TensorProto.BOOL, ()), info("next", _FLOAT, (4, 3)), seen]
    body = helper.make_graph([*steps, *ends], "iteration", counted, left)
    made.add("Loop", [made.weight(4, np.int64), "", "x"], (4, 3), (4, 4, 3), body=body)
    rows = [info("sum", _FLOAT, (3,)), part]
    steps = [helper.make_node("Add", ["sum", "part"], ["more"]), helper.make_node("Sigmoid", ["more"], ["each"])]
    body = helper.make_graph(steps, "row", rows, [info("more", _FLOAT, (3,)), info("each", _FLOAT, (3,))])
    made.add("Scan", [made.floats(3), "x"], (3,), (4, 3), body=body, num_scan_inputs=1)
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(operator, ["x"], [name])], name, [], [info(name, _FLOAT, (4, 3))]
        )
        for name, operator in (("then", "Exp"), ("else", "Neg"))
    }
    made.add("If", [made.weight(np.bool_(False), np.bool_)], (4, 3), **branches)
    return made


def resized() -> _Model:
    """Sizes that TVM's operator computes, and such that become matrices and indices."""
    made = _Model(("x", _FLOAT, (1, 2, 8, 6)), ("v", _FLOAT, (1, 2, 3, 4, 5)), ("u", _FLOAT, (1, 2, 9)))

    def scaled(mode: str, factors: Sequence[float], shape: Sequence[int], given: str = "x", **more: Any) -> None:
        if "places" in more:
            more["coordinate_transformation_mode"] = more.pop("places")
        made.add("Resize", [given, "", made.weight(factors)], shape, mode=mode, **more)

    twice, odd = (1, 1, 2, 3), (1, 1, 0.45, 1.3)
    for mode in ("nearest", "linear", "cubic"):
        scaled(mode, twice, (1, 2, 16, 18))
        scaled(mode, odd, (1, 2, 3, 7))
        scaled(mode, odd, (1, 2, 3, 7), places="align_corners")
    scaled("nearest", twice, (1, 2, 16, 18), places="asymmetric", nearest_mode="floor")
    scaled("linear", (1, 1, 0.13, 1.3), (1, 2, 1, 7), places="pytorch_half_pixel")
    scaled("linear", odd, (1, 2, 3, 7), places="half_pixel_symmetric")
    scaled("linear", (1, 1, 2, 2, 2), (1, 2, 6, 8, 10), "v")
    scaled("nearest", (1, 1, 2), (1, 2, 18), "u")
    for mode in ("linear", "cubic"):
        scaled(mode, odd, (1, 2, 3, 7), antialias=1, exclude_outside=1)
    region = made.weight((0, 0, 0.2, 0.4, 1, 1, 0.9, 1.3))
    cropped = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.5}
    sizes, none = made.weight((1, 2, 3, 5), np.int64), made.weight(())
    made.add("Resize", ["x", region, "", sizes], (1, 2, 3, 5), mode="linear", **cropped)
    # Old exporters write scales without elements.
    made.add("Resize", ["x", none, none, sizes], (1, 2, 3, 5), mode="linear")
    pair = made.weight((5, 9), np.int64)
    made.add("Resize", ["x", "", "", pair], (1, 2, 5, 4), axes=[2, 3], keep_aspect_ratio_policy="not_larger")
    return made


def sampled() -> _Model:
    """``GridSample`` with all modes and paddings, and an ``AffineGrid``."""
    made = _Model(("x", _FLOAT, (1, 2, 6, 5)), ("grid", _FLOAT, (1, 3, 4, 2)))
    for mode in ("linear", "nearest", "cubic"):
        for corners, padding in enumerate(("zeros", "border")):
            more = {"mode": mode, "padding_mode": padding, "align_corners": corners}
            made.add("GridSample", ["x", "grid"], (1, 2, 3, 4), **more)
    made.add("GridSample", ["x", "grid"], (1, 2, 3, 4), mode="linear", padding_mode="reflection")
    return made


def einsum() -> _Model:
    made = _Model(("x", _FLOAT, (2, 3, 4)), ("z", _FLOAT, (2, 4, 5)))
    made.add("Einsum", ["x", "z"], (2, 3, 5), equation="bij,bjk->bik")
    made.add("Einsum", ["x", "z"], (3, 2, 5), equation="bij, bjk -> ibk")
    made.add("Einsum", ["x"], (4, 2), equation="bij->jb")
    made.add("Einsum", ["x", "x"], (2, 3), equation="bij,bij->bi")
    return made


def normalized() -> _Model:
    """Normalizations, and ``Gelu`` both ways."""
    made = _Model(("x", _FLOAT, (2, 4, 6)))
    for approximate in ("none", "tanh"):
        made.add("Gelu", ["x"], (2, 4, 6), approximate=approximate)
    made.add("LayerNormalization", ["x", made.floats(6), made.floats(6)], (2, 4, 6), epsilon=1e-3)
    made.add("LayerNormalization", ["x", made.floats(4, 6)], (2, 4, 6), axis=1)
    inputs = ["x", made.floats(6), made.floats(6)]
    made.add("LayerNormalization", inputs, (2, 4, 6), (2, 4, 1), (2, 4, 1))
    made.add("SimplifiedLayerNormalization", ["x", made.floats(6)], (2, 4, 6), axis=-1)
    made.add("InstanceNormalization", ["x", made.floats(4), made.floats(4)], (2, 4, 6))
    return made


def quantized() -> _Model:
    shapes = {"x": (_UINT8, (4, 6)), "z": (_UINT8, (4, 6)), "i": (_UINT8, (1, 3, 9, 9)), "f": (_FLOAT, (4, 32))}
    made = _Model(*((name, kind, shape) for name, (kind, shape) in shapes.items()), opset=17)
    inputs = ["x", made.scale(), made.bytes_(), made.bytes_(6, 5), made.scale(), made.bytes_()]
    made.add("QLinearMatMul", [*inputs, made.weight(0.3), made.bytes_()], (4, 5), kind=_UINT8)
    made.add("MatMulInteger", ["x", made.bytes_(6, 5), made.bytes_(), made.bytes_(5)], (4, 5), kind=_INT32)
    inputs = ["x", made.bytes_(6, 5), made.scale(), made.scale(5), made.bytes_(), made.bytes_(5), made.floats(5)]
    made.add("MatMulIntegerToFloat", inputs, (4, 5), domain=_CONTRIB)
    made.add("ConvInteger", ["i", made.bytes_(8, 3, 3, 3), made.bytes_(), made.bytes_()], (1, 8, 7, 7), kind=_INT32)
    inputs = ["x", made.scale(), made.bytes_(), "z", made.scale(), made.bytes_(), made.scale(), made.bytes_()]
    for operator in ("QLinearAdd", "QLinearMul"):
        made.add(operator, inputs, (4, 6), kind=_UINT8, domain=_CONTRIB)
    inputs = ["x", made.scale(), made.bytes_(), made.weight(1 / 256), made.weight(0, np.uint8)]
    made.add("QLinearSoftmax", inputs, (4, 6), kind=_UINT8, domain=_CONTRIB, opset=13, axis=-1)
    inputs = ["f", made.bytes_(32, 5), made.scale(5), made.bytes_(5), made.floats(5)]
    made.add("DynamicQuantizeMatMul", inputs, (4, 5), domain=_CONTRIB)
    inputs = ["f", made.bytes_(3, 2, 8), made.scale(6)]
    made.add("MatMulNBits", inputs, (4, 3), domain=_CONTRIB, N=3, K=32, bits=4, block_size=16)
    return made


def attention() -> _Model:
    made = _Model(*((name, _FLOAT, (2, count, 32)) for name, count in (("q", 3), ("k", 5), ("v", 5))), opset=17)
    keys = made.weight(((1, 1, 1, 1, 1), (1, 1, 1, 0, 0)), np.int32)
    inputs = ["q", "k", "v", made.floats(96), keys]
    made.add("MultiHeadAttention", inputs, (2, 3, 32), domain=_CONTRIB, num_heads=4, mask_filter_value=-50.0)
    matrices = [made.floats(32, 96), made.floats(96)]
    made.add("Attention", ["q", *matrices], (2, 3, 32), domain=_CONTRIB, num_heads=4, unidirectional=1)
    made.add("Attention", ["q", *matrices], (2, 3, 32), domain=_CONTRIB, num_heads=4)
    return made


def write(folder: str) -> None:
    """Write ``NAME.onnx`` for each of ``NAMES``."""
    for name in NAMES:
        globals()[name]().save(Path(folder) / f"{name}.onnx")
