"""Choice of the layers that bfloat16 leaves in float32.

Attempts round the operands of products to bfloat16 and back, as the relax engine's ``narrowing`` does: of
convolutions, images are stored in bfloat16, for all readers. The result marks the layers that stay in float32 by a
conversion of their data from float32 to float32, which changes nothing and survives the passes of a compiler.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from tuner.engines.onnx import models
from tuner.engines.onnx.accuracy import comparing
from tuner.engines.onnx.precisions import layers, sensitivity
from tuner.engines.onnx.precisions.calibrating import Ranges
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import weights

_IMAGE = 4
"""Number of dimensions of the data of convolutions."""


def narrow(
    path: str,
    inputs: Sequence[str],
    out_path: str,
    *,
    threads: int,
    seconds: float,
    max_rel: float | None = None,
    top1: float | None = None,
) -> Json:
    """Write the model with its sensitive layers marked to ``out_path``; no file if all of them bear bfloat16.

    ``inputs`` and the other parameters are those of ``quantizing.quantize``. In the result, ``kept`` names the layers
    in float32, ``layers`` counts the products, and ``share`` is the largest error on the inputs as a share of the
    limit. Raises EngineFailure ``unsupported_dtype`` if the model's operator set has no bfloat16.
    """
    given = models.read(path)
    graphs.name_nodes(given.graph)
    model = layers.converted(given, "computed in bfloat16")
    kinds = graphs.kinds(model)
    chosen = [node for node in model.graph.node if _is_narrow(node) and kinds.get(node.input[0]) == TensorProto.FLOAT]
    gate = sensitivity.gate_of(model, max_rel, top1)
    with tempfile.TemporaryDirectory(prefix="tunesmith-narrow-") as folder:
        source = Path(folder) / "model.onnx"
        weights.write(model, source)
        attempts = sensitivity.Attempts(source, inputs, gate, _Writer(model), threads)
        costs = layers.operations(model, chosen)
        found = sensitivity.choose(costs, {sensitivity.NO_RANGES: dict}, attempts, seconds=seconds)
    if found.kept:
        graphs.replace_nodes(given.graph, _marked(given.graph, found.kept))
        weights.write(given, Path(out_path))
    return {
        "layers": len(chosen), "kept": list(found.kept), "share": min(found.agreement.share, comparing.LARGEST)
    }  # fmt: skip


def _is_narrow(node: onnx.NodeProto) -> bool:
    return node.op_type in layers.PRODUCTS and graphs.attribute(node, "group", 1) == 1


def _marked(graph: onnx.GraphProto, kept: Collection[str]) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        if node.name in kept:
            wide = f"{node.name}.float32"
            yield helper.make_node("Cast", [node.input[0]], [wide], to=TensorProto.FLOAT)
            node.input[0] = wide
        yield node


class _Writer:
    """Writes a model whose operands of some products are rounded to bfloat16."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model, self._shapes = model, graphs.shapes(model)

    def __call__(self, names: Collection[str], _: Ranges, path: Path) -> None:
        model = graphs.copy(self._model)
        graphs.replace_nodes(model.graph, _rounded(model.graph, set(names), self._images(names)))
        weights.write(model, path)

    def _images(self, names: Collection[str]) -> set[str]:
        read = (node.input[0] for node in self._model.graph.node if node.name in names)
        return {name for name in read if len(self._shapes.get(name, ())) == _IMAGE}


def _rounded(graph: onnx.GraphProto, names: set[str], images: set[str]) -> Iterator[onnx.NodeProto]:
    done: set[str] = set()
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in images or (node.name in names and place < 2):
                if name not in done:
                    done.add(name)
                    yield helper.make_node("Cast", [name], [f"{name}.bf16"], to=TensorProto.BFLOAT16)
                    yield helper.make_node("Cast", [f"{name}.bf16"], [f"{name}.rounded"], to=TensorProto.FLOAT)
                node.input[place] = f"{name}.rounded"
        yield node
