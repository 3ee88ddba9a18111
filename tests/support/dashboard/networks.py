"""Networks for seeded jobs: their tuning tasks, each with the latency of its default schedule and of the best one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from domain.models import ModelFacts, TensorSpec


@dataclass(frozen=True)
class Operator:
    name: str
    description: str
    weight: int
    flop: float
    default: float
    """Seconds, as are the best ones."""
    best: float


@dataclass(frozen=True)
class Network:
    name: str
    operators: tuple[Operator, ...]
    counts: dict[str, int]
    parameters: int
    inputs: tuple[TensorSpec, ...] = (TensorSpec(name="input", dtype="float32", shape=("batch", 3, 224, 224)),)
    outputs: tuple[TensorSpec, ...] = (TensorSpec(name="logits", dtype="float32", shape=("batch", 1000)),)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=lambda: {"input": (1, 3, 224, 224)})
    rest: float = 0.0004
    """Seconds of what is no tuning task."""

    @property
    def facts(self) -> ModelFacts:
        return ModelFacts(
            inputs=self.inputs,
            outputs=self.outputs,
            opset=17,
            ir_version=8,
            operators=self.counts,
            parameters=self.parameters,
        )

    @property
    def untuned(self) -> float:
        """Seconds of one run with default schedules."""
        return self.rest + sum(each.weight * each.default for each in self.operators)

    @property
    def reference(self) -> float:
        return 0.72 * self.untuned


def _operators(name: str, kind: str) -> Callable[[str, str, int, float, float, float], Operator]:
    """Of shape, kernel, weight, megaflop, and microseconds by default and at best."""

    def make(shape: str, kernel: str, weight: int, megaflop: float, default: float, best: float) -> Operator:
        return Operator(name, f"{kind} {shape} ∗ {kernel}", weight, megaflop * 1e6, default / 1e6, best / 1e6)

    return make


_conv = _operators("conv2d_NCHWc.x86", "conv2d")
_depthwise = _operators("depthwise_conv2d_NCHWc.x86", "depthwise")
_dense = _operators("dense_pack.x86", "dense")

RESNET = Network(
    name="resnet18-v1-7.onnx",
    operators=(
        _conv("1×3×224×224", "64×3×7×7 /2", 1, 236.0, 2950, 1840),
        _conv("1×64×56×56", "64×64×3×3", 4, 231.2, 2780, 1510),
        _conv("1×64×56×56", "128×64×3×3 /2", 1, 115.6, 1690, 930),
        _conv("1×64×56×56", "128×64×1×1 /2", 1, 12.8, 260, 121),
        _conv("1×128×28×28", "128×128×3×3", 3, 231.2, 2890, 1480),
        _conv("1×128×28×28", "256×128×3×3 /2", 1, 115.6, 1810, 940),
        _conv("1×128×28×28", "256×128×1×1 /2", 1, 12.8, 240, 117),
        _conv("1×256×14×14", "256×256×3×3", 3, 231.2, 3010, 1590),
        _conv("1×256×14×14", "512×256×3×3 /2", 1, 115.6, 2240, 1190),
        _conv("1×256×14×14", "512×256×1×1 /2", 1, 12.8, 310, 143),
        _conv("1×512×7×7", "512×512×3×3", 3, 231.2, 4420, 2370),
        _dense("1×512", "1000×512", 1, 1.0, 118, 84),
    ),
    counts={
        "Conv": 20,
        "BatchNormalization": 20,
        "Relu": 17,
        "Add": 8,
        "MaxPool": 1,
        "GlobalAveragePool": 1,
        "Gemm": 1,
    },
    parameters=11_689_512,
)

MOBILENET = Network(
    name="mobilenetv2-12.onnx",
    operators=(
        _conv("1×3×224×224", "32×3×3×3 /2", 1, 21.7, 390, 205),
        _depthwise("1×32×112×112", "32×1×3×3", 1, 7.2, 242, 118),
        _conv("1×32×112×112", "16×32×1×1", 1, 12.8, 195, 101),
        _conv("1×16×112×112", "96×16×1×1", 1, 38.5, 610, 322),
        _depthwise("1×96×112×112", "96×1×3×3 /2", 1, 5.4, 281, 149),
        _conv("1×24×56×56", "144×24×1×1", 2, 21.7, 312, 161),
        _depthwise("1×144×56×56", "144×1×3×3", 1, 8.1, 201, 96),
        _conv("1×32×28×28", "192×32×1×1", 3, 9.6, 128, 66),
        _depthwise("1×192×28×28", "192×1×3×3", 2, 2.7, 71, 35),
        _conv("1×64×14×14", "384×64×1×1", 4, 9.6, 121, 67),
        _depthwise("1×384×14×14", "384×1×3×3", 4, 1.4, 44, 22),
        _conv("1×96×14×14", "576×96×1×1", 3, 21.7, 251, 139),
        _conv("1×160×7×7", "960×160×1×1", 3, 15.1, 214, 118),
        _conv("1×320×7×7", "1280×320×1×1", 1, 40.1, 641, 361),
        _dense("1×1280", "1000×1280", 1, 2.6, 242, 203),
    ),
    counts={"Conv": 52, "Clip": 35, "Add": 10, "GlobalAveragePool": 1, "Gemm": 1, "Reshape": 1},
    parameters=3_504_872,
)

CLASSIFIER = Network(
    name="ppocr-cls.onnx",
    operators=(
        _conv("1×3×48×192", "16×3×3×3 /2", 1, 2.0, 41, 22),
        _depthwise("1×16×24×96", "16×1×3×3", 2, 0.66, 19, 11),
        _conv("1×16×24×96", "8×16×1×1", 3, 0.59, 12, 7),
        _dense("1×200", "2×200", 1, 0.0008, 0.9, 0.8),
    ),
    counts={"Conv": 53, "Mul": 27, "Add": 25, "Clip": 18, "Div": 18, "Relu": 15, "Gemm": 1, "Softmax": 1},
    parameters=138_204,
    inputs=(TensorSpec(name="x", dtype="float32", shape=(None, 3, 48, 192)),),
    outputs=(TensorSpec(name="save_infer_model/scale_0.tmp_1", dtype="float32", shape=(None, 2)),),
    shapes={"x": (1, 3, 48, 192)},
    rest=0.00001,
)

SEGMENTER = replace(CLASSIFIER, name="segmenter.onnx")

HOSTILE = Network(
    name="<script>alert('model')</script>&amp;.onnx",
    operators=(
        Operator("conv2d<b>", "<img src=x onerror=alert(1)> ∗ 8×16×1×1", 1, 5.9e5, 12e-6, 7e-6),
        Operator('dense"onmouseover="alert(2)', "dense 1×200", 2, 800.0, 9e-7, 8e-7),
    ),
    counts={"evil::<i>Conv</i>": 2},
    parameters=100,
    inputs=(TensorSpec(name="<u>x</u>", dtype="float32", shape=("<s>n</s>", 3)),),
    outputs=(TensorSpec(name="</td><script>y</script>", dtype="float32", shape=(1, 2)),),
    shapes={"<u>x</u>": (1, 3)},
)
"""Names that would be markup if anybody took them for it."""
