"""A library as an operator of ONNX Runtime: ``model.onnx`` with one node, and ``libtunesmith_ort.so`` that runs it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.engines.runtime.library import linking
from tuner.engines.runtime.library.plan import NotStandalone, Plan
from tuner.engines.runtime.library.sizes import Axes, Sizes
from tuner.engines.runtime.library.source import Facts

MODEL, OPERATOR = "model.onnx", "libtunesmith_ort.so"
SOURCE = Path(__file__).parent / "onnxruntime" / "operator.c"
_DOMAIN = "ai.tunesmith"
_IR_VERSION, _OPSET = 8, 17
"""Of ONNX 1.13: ONNX Runtime 1.17, the oldest release with the functions that the operator uses, reads both."""
_TYPES = {"float32": "FLOAT", "float64": "DOUBLE"}


def write(plan: Plan, sizes: Sizes | None, facts: Facts, folder: Path, compiler: str) -> list[str]:
    """Write both files beside a linked ``libmodel.so`` and return their names. Raises NotStandalone.

    ``plan`` is any one of a library of several ``sizes``.
    """
    (folder / MODEL).write_bytes(_model(plan, sizes, facts))
    command = [
        *(compiler, "-shared", "-o", str(folder / OPERATOR), "-std=c11", "-O2", "-fPIC", "-fvisibility=hidden"),
        *("-I", str(linking.DRIVER), str(SOURCE), "-Wl,-z,defs", "-Wl,--build-id=none", "-s"),
        *("-Wl,--no-as-needed", *(linking.separate_library(compiler, name) for name in ("dl", "pthread"))),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise NotStandalone(f"linking: {error.stderr[-300:]}") from error
    return [MODEL, OPERATOR]


def _model(plan: Plan, sizes: Sizes | None, facts: Facts) -> bytes:
    # Takes a second to import, and few jobs need it.
    from onnx import helper

    # As operator.c names it.
    operator = f"Model_{facts.model[:16]}"
    node = helper.make_node(operator, plan.input_names, plan.output_names, domain=_DOMAIN, name="model")
    inputs = _values(plan, plan.input_names, plan.inputs, sizes, sizes.input_axes if sizes else ())
    outputs = _values(plan, plan.output_names, plan.outputs, sizes, sizes.output_axes if sizes else ())
    graph = helper.make_graph([node], "model", inputs, outputs)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_DOMAIN, 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="tunesmith")
    return bytes(made.SerializeToString(deterministic=True))


def _values(plan: Plan, names: Sequence[str], numbers: Sequence[int], sizes: Sizes | None, axes: Axes) -> list[Any]:
    from onnx import TensorProto, helper

    def value(place: int) -> Any:
        tensor = plan.tensors[numbers[place]]
        kind = _TYPES.get(tensor.dtype, tensor.dtype.upper())
        shape: list[int | str | None] = list(tensor.shape)
        if tensor.open:
            shape = [
                size if position is None else None for size, position in zip(tensor.shape, tensor.open, strict=True)
            ]
        if sizes:
            shape = [
                size if axis is None else sizes.dimensions[axis].name
                for size, axis in zip(tensor.shape, axes[place], strict=True)
            ]
        return helper.make_tensor_value_info(names[place], TensorProto.DataType.Value(kind), shape)

    return [value(place) for place in range(len(names))]
