"""Import of ONNX files into Relax modules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
import tvm
from tvm.relax.frontend.onnx import from_onnx, onnx_frontend

from tuner.engines.protocol.messages import Json
from tuner.engines.relax import converters, plugins
from tuner.engines.runtime import importing, progress, weights

_DOMAINS = ("", "ai.onnx", "com.microsoft")
"""Domains whose operators the importer looks up by type alone; others are named with their domain."""


def install() -> None:
    """Let TVM's importer count operators, join inputs in pairs, and read weights from files; idempotent."""
    onnx_frontend.get_numpy = weights.array
    importer = onnx_frontend.ONNXGraphImporter
    if not hasattr(importer._convert_operator, "is_counting"):
        importer._convert_operator = progress.counting(importer._convert_operator)
    onnx_frontend.MultiInputBase._impl_v1 = classmethod(_pairwise)
    converters.install()


_stacked = onnx_frontend.MultiInputBase._impl_v1.__func__


def _pairwise(cls: Any, builder: Any, inputs: list[Any], attributes: Any, params: Any) -> Any:
    """Convert ``Max``, ``Mean``, ``Min`` and ``Sum``, two inputs at a time.

    TVM stacks computed inputs into a tensor of a rank that no layout supports, and dies by SIGFPE if they are scalars.
    """
    if all(isinstance(each, tvm.ir.GenericConst) for each in inputs):
        return _stacked(cls, builder, inputs, attributes, params)
    return cls._impl_dynamic(builder, inputs)


@dataclass(frozen=True, kw_only=True)
class Imported:
    module: Any
    """``tvm.IRModule`` of Relax operators with weights as constants."""
    inputs: tuple[Json, ...]
    """``{name, dtype, shape}`` in parameter order, with the ONNX names."""
    outputs: tuple[Json, ...]
    operators: dict[str, int]


@partial(importing.once_a_file, most_kept=256 << 20)
def load(model: onnx.ModelProto) -> Imported:
    """Import a prepared model.

    Raises EngineFailure ``invalid_model``, ``unsupported_operators`` with ``details.operators {name: count}``, or
    ``import_failed`` if TVM supports every operator and still cannot import one.
    """
    model = importing.prepare(model, plugins.install())
    counted = importing.counts(model.graph, _DOMAINS)
    importing.refuse_unknown(counted, _known())
    with importing.reported(onnx_frontend.ONNXGraphImporter, counted):
        # Sanitized input names would not be those of the model.
        module = from_onnx(model, sanitize_input_names=False)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: _spec(value) for value in model.graph.input if value.name not in constants}
    return Imported(
        module=module,
        inputs=tuple(inputs[str(parameter.name)] for parameter in module["main"].params),
        outputs=tuple(_spec(value) for value in model.graph.output),
        operators=counted,
    )


def _spec(value: onnx.ValueInfoProto) -> Json:
    kind = value.type.tensor_type
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)).name
    return {"name": value.name, "dtype": dtype, "shape": [int(size.dim_value) for size in kind.shape.dim]}


def _known() -> set[str]:
    # This private map is the only list of the operators that the importer converts; it has no entry for If.
    return {*onnx_frontend._get_convert_map(), "If", "Constant"}
