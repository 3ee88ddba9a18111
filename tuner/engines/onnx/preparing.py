"""Preparation of an uploaded model as the file that every engine compiles: static shapes, constants folded."""

from __future__ import annotations

import itertools
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner

from tuner.engines.onnx import arrays, branches, models, sessions, vetting
from tuner.engines.onnx.accuracy import comparing
from tuner.engines.onnx.rewriting import applying, graphs
from tuner.engines.protocol import plugins
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import environment, importing, weights

Shapes = dict[str, list[int]]
_log = logging.getLogger(__name__)
_MOST_ROUNDS = 3
"""Maximum rounds of replacing operators and folding, because folding may restore what was replaced."""


def resolve(model: onnx.ModelProto, given: Shapes) -> Shapes:
    """Return the static shape of every input, from the model's own dimensions and the given ones.

    A symbol bound by one input's given shape is bound in the others too. Raises EngineFailure ``shape_mismatch``, or
    ``shape_required`` with ``details.dimensions [{input, axis, symbol}]`` (axis None: the rank itself is unknown).
    """
    declared = {value.name: models.spec(value)["shape"] for value in models.fed_inputs(model)}
    ranks = {value.name: value.type.tensor_type.HasField("shape") for value in models.fed_inputs(model)}
    unknown = sorted(set(given) - set(declared))
    if unknown:
        raise _mismatch(f"the model has no input {', '.join(unknown)}; its inputs are {', '.join(declared)}")
    symbols: dict[str, int] = {}
    for name, shape in given.items():
        _bind(name, shape, declared[name] if ranks[name] else None, symbols)
    resolved: Shapes = {}
    missing: list[Json] = []
    for name, dimensions in declared.items():
        if name in given:
            resolved[name] = [int(size) for size in given[name]]
        elif not ranks[name]:
            missing.append({"input": name, "axis": None, "symbol": None})
        else:
            sizes: list[Any] = [symbols.get(size, size) if isinstance(size, str) else size for size in dimensions]
            missing += [
                {"input": name, "axis": axis, "symbol": size}
                for axis, size in enumerate(sizes)
                if not isinstance(size, int)
            ]
            resolved[name] = sizes
    if missing:
        raise _required(missing)
    return resolved


def _bind(name: str, shape: list[int], declared: list[Any] | None, symbols: dict[str, int]) -> None:
    if any(not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in shape):
        raise _mismatch(f"dimensions of {name} must be positive integers, not {shape}")
    if declared is None:
        return
    if len(shape) != len(declared):
        raise _mismatch(f"{name} has {len(declared)} dimensions {_shown(declared)}, not {len(shape)}")
    for axis, (size, own) in enumerate(zip(shape, declared, strict=True)):
        if isinstance(own, int) and own != size:
            raise _mismatch(f"dimension {axis} of {name} is fixed at {own}, not {size}")
        if isinstance(own, str) and symbols.setdefault(own, size) != size:
            raise _mismatch(f"dimension {own} is {symbols[own]} in one input and {size} in {name}")


def _mismatch(message: str) -> EngineFailure:
    return EngineFailure("shape_mismatch", message)


def _required(missing: list[Json]) -> EngineFailure:
    places = ", ".join(
        f"{entry['input']}[{'?' if entry['axis'] is None else entry['axis']}]"
        + (f" ({entry['symbol']})" if entry["symbol"] else "")
        for entry in missing
    )
    return EngineFailure("shape_required", f"these dimensions have no size: {places}", details={"dimensions": missing})


def _shown(shape: list[Any]) -> str:
    return "(" + ", ".join("?" if size is None else str(size) for size in shape) + ")"


def fix(static: onnx.ModelProto, resolved: Shapes) -> None:
    """Make inputs static, in place, and drop weights listed as inputs, so that they can be folded."""
    inputs = models.fed_inputs(static)
    del static.graph.input[:]
    static.graph.input.extend(inputs)
    # Weights that are not inputs require IR version 4.
    static.ir_version = max(static.ir_version, 4)
    for value in static.graph.input:
        set_shape(value, resolved[value.name])
    # Old sizes of intermediate values would contradict the new ones.
    del static.graph.value_info[:]
    for value in static.graph.output:
        if any(not isinstance(size, int) for size in models.spec(value)["shape"]):
            value.type.tensor_type.ClearField("shape")


def set_shape(value: Any, shape: list[int]) -> None:
    tensor = value.type.tensor_type
    tensor.ClearField("shape")
    tensor.shape.SetInParent()
    for size in shape:
        tensor.shape.dim.add().dim_value = size


def prepare(path: str, input_shapes: Shapes, out_path: str) -> Json:
    """Write the prepared model to ``out_path``; ``memory_bytes`` is what this needed, with runs of the model.

    Folding uses ONNX Runtime's basic level: constants, and batch normalization into convolutions, all in standard
    operators. TVM imports more models that way and builds them in a third less time. If the folded model leaves the
    standard domains, fails the checker or disagrees with the original, the unfolded one is used. Loops, quantized
    operators and recurrent layers are replaced by plain operators if ONNX Runtime computes the same with them.
    """
    static = models.read(path)
    resolved = resolve(static, input_shapes)
    # A copy of weights in the model is made only where it may be needed.
    original = graphs.copy(static) if branches.applies(static) else None
    fix(static, resolved)
    if not static.graph.output:
        raise EngineFailure("invalid_model", "the model has no outputs")
    vetting.check_memory(static)
    inputs = arrays.make_for_checks([models.spec(value) for value in static.graph.input], static.graph)
    try:
        session = sessions.open_session(static, threads=1)
    except EngineFailure:
        taken = branches.take(static, original, inputs[0]) if original else None
        if taken is None:
            raise
        static, session = taken, sessions.open_session(taken, threads=1)
    expected = [sessions.run(session, each) for each in inputs]
    del session, original
    for value in static.graph.output:
        # An actual run is authoritative; shape inference leaves gaps.
        set_shape(value, list(expected[0][value.name].shape))
    # Beside the result: a temporary folder may be in memory, and is no place for gigabytes.
    with tempfile.TemporaryDirectory(prefix="tunesmith-prepare-", dir=Path(out_path).parent) as folder:
        prepared, is_folded = _simplified(static, inputs, expected, Path(folder))
        weights.write(prepared, Path(out_path))
    return {
        "inputs": [models.spec(value) for value in prepared.graph.input],
        "outputs": [models.spec(value) for value in prepared.graph.output],
        "operators": models.operator_counts(prepared.graph),
        "folded": is_folded,
        "memory_bytes": environment.peak_bytes(),
    }


def _simplified(
    static: onnx.ModelProto, inputs: list[arrays.Arrays], expected: list[arrays.Arrays], folder: Path
) -> tuple[onnx.ModelProto, bool]:
    """Return the model folded and of plain operators, and whether it was folded; files of weights are in ``folder``."""
    static = _inlined(static)
    if static.functions:
        # Folding would inline functions for which an engine's plugin may have a faster implementation.
        return _plain(static) or static, False
    folded = _folded(static, inputs, expected, folder)
    for _ in range(_MOST_ROUNDS):
        # Folding the replacement of one operator may make the operands of another constant.
        plain = _plain(folded or static)
        if plain is None:
            break
        static, folded = plain, _folded(plain, inputs, expected, folder)
    return folded or static, folded is not None


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its functions inlined; if engines have plugins, those that need plain operators alone."""
    if not model.functions:
        return model
    if not os.environ.get(plugins.VARIABLE):
        return onnx.inliner.inline_local_functions(model)
    replaced = [
        (function.domain, function.name)
        for function in model.functions
        if any(applying.has_plain_form(node) for node in importing.every_node(function.node))
    ]
    return onnx.inliner.inline_selected_functions(model, replaced) if replaced else model


def _plain(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return the model without operators that few compilers support, or None if it has none or proof fails."""
    if not applying.has_plain_forms(model.graph):
        return None
    done = applying.apply(graphs.copy(model), 0, applying.PLAIN)
    for name, reason in done.undone.items():
        _log.warning("operators were not replaced by plain ones (%s): %s", name, reason)
    if not done.applied:
        return None
    graphs.drop_unused_opsets(done.model)
    return done.model


def _folded(
    static: onnx.ModelProto, inputs: list[arrays.Arrays], expected: list[arrays.Arrays], folder: Path
) -> onnx.ModelProto | None:
    target = Path(tempfile.mkdtemp(dir=folder)) / "folded.onnx"
    try:
        sessions.open_session(static, threads=1, level=sessions.BASIC, optimized=str(target))
        folded = models.read_optimized(target)
    except EngineFailure:
        return None
    _name_constants(folded, static)
    _widen_constants(folded)
    if any(node.domain not in models.STANDARD_DOMAINS for node in folded.graph.node):
        return None
    # The optimizer imports its own operator sets even if it does not use them.
    graphs.drop_unused_opsets(folded)
    if [value.name for value in folded.graph.output] != [value.name for value in static.graph.output]:
        return None
    if {value.name for value in folded.graph.input} != set(inputs[0]):
        return None
    if not _agrees(folded, inputs, expected):
        return None
    before, now = ({node.op_type for node in each.graph.node} for each in (static, folded))
    if "Shape" in now and now - before:
        # ONNX Runtime replaces an operator that it lacks by its definition, whose sizes only the next folding knows.
        return _folded(folded, inputs, expected, folder) or folded
    return folded


def _name_constants(folded: onnx.ModelProto, static: onnx.ModelProto) -> None:
    """Rename the constants that folding added, in place.

    ONNX Runtime names the sizes around a Gemm that it makes. Given the result, it uses these names once more, and then
    refuses the model.
    """
    known, values = _values(static), _values(folded)
    added = [tensor.name for tensor in folded.graph.initializer if tensor.name not in known]
    free = (name for name in map("folded_{}".format, itertools.count()) if name not in values)
    names = dict(zip(added, free, strict=False))
    for tensor in folded.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in importing.every_node(folded.graph.node):
        node.input[:] = [names.get(name, name) for name in node.input]


def _widen_constants(folded: onnx.ModelProto) -> None:
    """Convert constants in float16 that are read as float32 alone, in place.

    ONNX Runtime has no products in float16 for CPUs. It puts conversions around them after it has folded constants.
    """
    graph = folded.graph
    narrow = {each.name: each for each in graph.initializer if each.data_type == onnx.TensorProto.FLOAT16}
    casts = [
        node
        for node in graph.node
        if node.op_type == "Cast" and node.input[0] in narrow and graphs.attribute(node, "to") == onnx.TensorProto.FLOAT
    ]
    outputs = {value.name for value in graph.output}
    made = {node.output[0]: narrow[node.input[0]] for node in casts if node.output[0] not in outputs}
    if not made:
        return
    graphs.replace_nodes(graph, [node for node in graph.node if node.output[0] not in made])
    for name, tensor in made.items():
        graph.initializer.append(onnx.numpy_helper.from_array(weights.array(tensor).astype("float32"), name))
    graphs.drop_unused(graph)


def _values(model: onnx.ModelProto) -> set[str]:
    """Return the names of initializers and of what operators compute."""
    computed = {name for node in importing.every_node(model.graph.node) for name in node.output}
    return computed | {tensor.name for tensor in model.graph.initializer}


def _agrees(folded: onnx.ModelProto, inputs: list[arrays.Arrays], expected: list[arrays.Arrays]) -> bool:
    try:
        session = sessions.open_session(folded, threads=1)
        actual = [sessions.run(session, each) for each in inputs]
    except EngineFailure:
        return False
    pairs = zip(expected, actual, strict=True)
    return all(output["passed"] for pair in pairs for output in comparing.compare(*pair))
