"""From an uploaded model to the file that every engine compiles: static shapes, constants folded."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.reference import arrays, comparing, models, sessions, shapes, vetting

_CHECK_SEED = 0


def prepare(path: str, input_shapes: shapes.Shapes, out_path: str) -> Json:
    """Write the prepared model to ``out_path``.

    Folding is ONNX Runtime's basic level: constants, and batch normalization into convolutions, all in standard
    operators. It lifts the number of models that TVM imports and cuts its build time by a third. A folded model that
    leaves the standard domains, fails the checker or disagrees with the original is dropped for the unfolded one.
    """
    model = models.read(path)
    static = shapes.fix(model, shapes.resolve(model, input_shapes))
    if not static.graph.output:
        raise EngineFailure("invalid_model", "the model has no outputs")
    vetting.check_memory(static)
    inputs = arrays.make([models.spec(value) for value in static.graph.input], _CHECK_SEED, static.graph)
    expected = sessions.run(sessions.open_session(static.SerializeToString(), threads=1), inputs)
    for value in static.graph.output:
        # What a run gives is the truth; shape inference leaves gaps.
        shapes.set_shape(value, list(expected[value.name].shape))
    # Folding would put a function in place of its calls, and an engine may have something faster for them: a plugin.
    folded = None if static.functions else _folded(static, inputs, expected)
    prepared = folded or static
    Path(out_path).write_bytes(prepared.SerializeToString())
    return {
        "inputs": [models.spec(value) for value in prepared.graph.input],
        "outputs": [models.spec(value) for value in prepared.graph.output],
        "operators": models.operator_counts(prepared.graph),
        "folded": folded is not None,
    }


def _folded(static: onnx.ModelProto, inputs: arrays.Arrays, expected: arrays.Arrays) -> onnx.ModelProto | None:
    with tempfile.TemporaryDirectory(prefix="tunesmith-prepare-") as folder:
        target = Path(folder) / "folded.onnx"
        try:
            sessions.open_session(static.SerializeToString(), threads=1, level=sessions.BASIC, optimized=str(target))
            folded = models.read(str(target))
        except EngineFailure:
            return None
    if any(node.domain not in models.STANDARD_DOMAINS for node in folded.graph.node):
        return None
    # The optimizer imports its own operator sets even where it uses none.
    standard = [entry for entry in folded.opset_import if entry.domain in models.STANDARD_DOMAINS]
    del folded.opset_import[:]
    folded.opset_import.extend(standard)
    if [value.name for value in folded.graph.output] != [value.name for value in static.graph.output]:
        return None
    if {value.name for value in folded.graph.input} != set(inputs):
        return None
    return folded if _agrees(folded, inputs, expected) else None


def _agrees(folded: onnx.ModelProto, inputs: arrays.Arrays, expected: arrays.Arrays) -> bool:
    try:
        actual = sessions.run(sessions.open_session(folded.SerializeToString(), threads=1), inputs)
    except EngineFailure:
        return False
    return all(output["passed"] for output in comparing.compare(expected, actual))
