"""Import of ONNX files into Relay modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx
from tvm import relay
from tvm.relay.frontend import onnx as frontend

from tuner.engines.relay import converters, corrections, plugins
from tuner.engines.runtime import importing, weights

_DOMAINS = ("", "ai.onnx", "com.microsoft", "org.pytorch.aten")
"""Domains whose operators the importer looks up by type alone; others are named with their domain."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    module: Any
    """``tvm.IRModule``."""
    params: dict[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: dict[str, int]


@importing.once_a_file
def load(model: onnx.ModelProto) -> Imported:
    """Import a prepared model.

    Raises EngineFailure ``invalid_model``, ``unsupported_operators`` with ``details.operators {name: count}``, or
    ``import_failed`` if TVM supports every operator and still cannot import one.
    """
    converters.install()
    frontend.get_numpy = weights.array
    model = importing.prepare(model, plugins.install())
    counted = importing.counts(model.graph, _DOMAINS)
    importing.refuse_unknown(counted, _known(model))
    corrections.use_threads(1)
    with importing.reported(frontend.GraphProto, counted):
        module, params = relay.frontend.from_onnx(model, freeze_params=True)
    return Imported(
        module=module,
        params=params,
        inputs=tuple(str(parameter.name_hint) for parameter in module["main"].params),
        outputs=tuple(value.name for value in model.graph.output),
        operators=counted,
    )


def _known(model: onnx.ModelProto) -> set[str]:
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    # This private map is the only list of the operators that the importer converts.
    return {*frontend._get_convert_map(opset), *frontend._identity_list, "Constant"}
