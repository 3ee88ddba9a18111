"""Runs of the reference with rounding errors of their own, which show how far correct results may differ.

Each run uses another optimization level and thread count of ONNX Runtime, adds up products in another order, and moves
inputs and weights by a few units in the last place, up or down at random. An operator's rounding error has the effect
of such a change of its operands.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tuner.engines.onnx import arrays, models, sessions
from tuner.engines.onnx.arrays import Arrays
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.protocol.messages import Json
from tuner.engines.runtime import importing, weights

WIDE = 16
"""Units in the last place by which operands change in runs that only show near ties: the multiple of the estimated
rounding error that a build is allowed."""
_LEVELS = (sessions.ALL, sessions.NONE, sessions.EXTENDED, sessions.BASIC)
_RUNS, _SELECTING_RUNS = 4, 16
"""Runs for each input file, and runs of models that select: a tie has gone both ways in all but 2^-16 of cases."""
_MOST_BYTES = 256 << 20
"""Maximum size of all stored outputs."""
_MOST_WEIGHT_BYTES = 512 << 20
"""Maximum size of a model whose weights are changed, too."""
_CHUNK = 2**18
"""Elements that are changed at a time, which takes several times their memory."""
_WEIGHTED = {
    "Add", "BatchNormalization", "Conv", "ConvTranspose", "Div", "GRU", "Gather", "Gemm", "InstanceNormalization",
    "LSTM", "LayerNormalization", "MatMul", "Mul", "RNN", "Sub",
}  # fmt: skip
"""Operators whose constant operands are weights; those of others may be shapes, exponents or bounds."""
_REDUCING = {
    "AveragePool", "GlobalAveragePool", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean",
    "ReduceSum", "ReduceSumSquare",
}  # fmt: skip
"""Operators that sum. One number after another, n numbers of like size err by about √n / 6 units in the last place."""
_ROUNDING = {"DynamicQuantizeLinear", "QuantizeLinear", "Round"}
_PICKING = {"ArgMax", "ArgMin", "Compress", "Hardmax", "NonMaxSuppression", "NonZero", "TopK", "Unique"}
_SELECTING = _ROUNDING | _PICKING | {
    "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Sign", "ThresholdedRelu",
}  # fmt: skip
"""Operators whose result jumps where their operands are tied or cross a bound."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Outputs of one run."""

    ulps: int
    """Units in the last place by which inputs and weights were changed."""
    outputs: Arrays


def run(path: str, inputs: Sequence[str], folders: Sequence[str], *, threads: int, seconds: float) -> Json:
    """Run a prepared model several times on each of ``inputs`` and return the written files, ``{paths}``.

    ``folders`` has one folder for each of ``inputs``, for ``load``. No run starts that would end later than ``seconds``
    from now if it took as long as the longest so far. The same arguments give the same changes.
    """
    ends, longest = time.monotonic() + seconds, 0.0
    model, is_large = models.read(path), Path(path).stat().st_size > _MOST_WEIGHT_BYTES
    if not is_large:
        model = onnx.shape_inference.infer_shapes(model)
    loaded = [arrays.load(each) for each in inputs]
    paths: list[str] = []
    written = 0
    count = _SELECTING_RUNS if selects(model.graph) else _RUNS
    for number in range(count):
        ulps = WIDE if number % 4 == 3 or number >= 8 else 1
        # Further runs only have to show ties. Those that are optimized, which shuffled sums prevent, are faster.
        is_further = number >= len(_LEVELS)
        level = _LEVELS[0 if is_further else number]
        generator = np.random.default_rng(number)
        session = None
        for fed, folder in zip(loaded, folders, strict=True):
            started = time.monotonic()
            if started + longest > ends or written > _MOST_BYTES:
                return {"paths": paths}
            Path(folder).mkdir(parents=True, exist_ok=True)
            if session is None:
                used = 1 if number in (1, 2) else threads
                with tempfile.TemporaryDirectory(prefix="weights-", dir=folder) as scratch:
                    store = weights.Store(Path(scratch) / "weights")
                    changed = model if is_large else _perturbed(model, ulps, generator, store, reorder=not is_further)
                    session = sessions.open_session(changed, threads=used, level=level)
            outputs = sessions.run(session, {name: change(array, ulps, generator) for name, array in fed.items()})
            paths.append(str(Path(folder) / f"{number:02}-{ulps}.npz"))
            arrays.save(paths[-1], outputs)
            longest = max(longest, time.monotonic() - started)
            written += sum(array.nbytes for array in outputs.values())
    return {"paths": paths}


def load(folder: str) -> list[Run]:
    """Read the runs that ``run`` wrote; none if there is no such folder. Raises EngineFailure ``invalid_inputs``."""
    return [
        Run(ulps=int(path.stem.partition("-")[2]), outputs=arrays.load(str(path)))
        for path in sorted(Path(folder).glob("*.npz"))
    ]


def selects(graph: onnx.GraphProto) -> bool:
    """Return whether the graph has operators whose results jump where values are tied."""
    return any(node.op_type in _SELECTING for node in importing.every_node(graph.node))


def is_quantized(graph: onnx.GraphProto) -> bool:
    """Return whether the graph rounds values to integers, and picks none of its results by their order."""
    used = {node.op_type for node in importing.every_node(graph.node)}
    return not used.isdisjoint(_ROUNDING) and used.isdisjoint(_PICKING)


def change(array: Any, ulps: int, generator: Any) -> Any:
    """Return the array with each element moved ``ulps`` units in the last place up or down.

    Whole numbers stay: they are pixels, masks, exponents, or numbers that the model compares with constants.
    """
    if array.dtype.kind != "f":
        return array
    changed = np.empty(array.shape, array.dtype)
    given, moved = array.reshape(-1), changed.reshape(-1)
    for start in range(0, array.size, _CHUNK):
        part = given[start : start + _CHUNK]
        signs = generator.integers(0, 2, part.shape) * 2 - 1
        step = (1 + signs * (ulps * np.finfo(array.dtype).eps)).astype(array.dtype)
        moved[start : start + _CHUNK] = np.where(np.isfinite(part) & (part != np.rint(part)), part * step, part)
    return changed


def _perturbed(
    model: onnx.ModelProto, ulps: int, generator: Any, store: weights.Store, *, reorder: bool
) -> onnx.ModelProto:
    """Return a changed copy; weights that the model has in a file are then in ``store``."""
    changed = graphs.copy(model)
    readers: dict[str, list[str]] = {}
    for node in importing.every_node(changed.graph.node):
        for name in node.input:
            readers.setdefault(name, []).append(node.op_type)
    # A quantized network's weights are integers. Its scales move what is then rounded, as rounding errors do.
    scales = _scales(changed.graph)
    moving = {
        tensor.name: tensor
        for tensor in changed.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
        and (tensor.name in scales or (sum(tensor.dims) > 1 and set(readers.get(tensor.name, ())) <= _WEIGHTED))
    }
    for tensor in moving.values():
        _set(tensor, change(weights.array(tensor), ulps, generator), store)
    if reorder:
        read_once = {name: each for name, each in moving.items() if len(readers[name]) == 1}
        _reorder_sums(changed.graph, read_once, generator, store)
    _move_sums(changed.graph, ulps, generator)
    return changed


def _scales(graph: onnx.GraphProto) -> set[str]:
    """Return the values that scale what is then rounded to integers.

    They are those of ``QuantizeLinear``, and the factors before ``Round`` where the preparation has replaced it.
    """
    makers = {name: node for node in graph.node for name in node.output}
    found = {node.input[1] for node in graph.node if node.op_type == "QuantizeLinear"}
    rounded = [node.input[0] for node in graph.node if node.op_type == "Round"]
    seen: set[str] = set()
    while rounded:
        name = rounded.pop()
        maker = makers.get(name)
        if maker is None or name in seen:
            continue
        seen.add(name)
        if maker.op_type == "Add":
            rounded += maker.input
        elif maker.op_type in ("Mul", "Div"):
            found.update(maker.input)
    return found


def _reorder_sums(
    graph: onnx.GraphProto, read_once: dict[str, onnx.TensorProto], generator: Any, store: weights.Store
) -> None:
    """Shuffle the input channels of convolutions and the columns of matrix products, whose sums are then reordered."""
    nodes = list(graph.node)
    del graph.node[:]
    for place, node in enumerate(nodes):
        axes = _summed_axes(node, read_once)
        if axes:
            of_input, of_weight = axes
            tensor = read_once[node.input[1]]
            order = generator.permutation(tensor.dims[of_weight])
            _set(tensor, np.take(weights.array(tensor), order, axis=of_weight), store)
            indices = f"tunesmith_order_{place}"
            graph.initializer.append(onnx.numpy_helper.from_array(order.astype(np.int64), indices))
            given = [node.input[0], indices]
            graph.node.append(onnx.helper.make_node("Gather", given, [f"{indices}_input"], axis=of_input))
            node.input[0] = f"{indices}_input"
        graph.node.append(node)


def _move_sums(graph: onnx.GraphProto, ulps: int, generator: Any) -> None:
    """Move the results of reductions, whose order is not ours, by the rounding error of sums of that many numbers."""
    sizes = {
        value.name: math.prod(each.dim_value for each in value.type.tensor_type.shape.dim)
        for value in (*graph.value_info, *graph.input, *graph.output)
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    nodes = list(graph.node)
    del graph.node[:]
    for place, node in enumerate(nodes):
        graph.node.append(node)
        if node.op_type not in _REDUCING or not sizes.get(node.output[0]):
            continue
        exact, factor, moved = f"tunesmith_exact_{place}", f"tunesmith_factor_{place}", node.output[0]
        count = sizes.get(node.input[0], 0) / sizes[moved]
        step = generator.choice((-1, 1)) * ulps * max(1.0, math.sqrt(count) / 6)
        value = np.float32(1 + step * float(np.finfo(np.float32).eps))
        graph.initializer.append(onnx.numpy_helper.from_array(value, factor))
        graph.node[-1].output[0] = exact
        graph.node.append(onnx.helper.make_node("Mul", [exact, factor], [moved]))


def _summed_axes(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> tuple[int, int] | None:
    """Return the axes of the input and of the constant weight that an operator sums over."""
    if len(node.input) < 2 or node.input[1] not in constants or len(constants[node.input[1]].dims) < 2:
        return None
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    match node.op_type:
        case "Conv" if attributes.get("group", 1) == 1:
            return 1, 1
        case "MatMul":
            return -1, -2
        case "Gemm" if not attributes.get("transA"):
            return 1, 1 if attributes.get("transB") else 0
    return None


def _set(tensor: onnx.TensorProto, array: Any, store: weights.Store) -> None:
    if weights.is_outside(tensor):
        store.put(tensor, array)
        return
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(array, order="C"), tensor.name))
