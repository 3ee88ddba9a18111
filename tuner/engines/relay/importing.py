"""ONNX files into Relay modules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from tvm import relay
from tvm.relay.frontend import onnx as frontend

from tuner.engines.protocol import constants, faults, operators
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import converters, plugins, speedups

_DOMAINS = ("", "ai.onnx", "com.microsoft", "org.pytorch.aten")
"""Whose operators the importer knows, by type alone; those of others are named with their domain."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    module: Any
    """``tvm.IRModule``"""
    params: dict[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: dict[str, int]


def load(path: str) -> Imported:
    """Import a prepared model; a second request for the same file costs nothing.

    Raises EngineFailure ``invalid_model``, ``unsupported_operators`` with ``details.operators {name: count}``, or
    ``import_failed`` when TVM knows every operator and still cannot import the model.
    """
    try:
        modified_ns = Path(path).stat().st_mtime_ns
    except OSError as error:
        raise EngineFailure("invalid_model", f"cannot read the model: {error.strerror}") from error
    return _load(path, modified_ns)


@lru_cache(maxsize=2)
def _load(path: str, modified_ns: int) -> Imported:  # noqa: ARG001 - part of the key
    try:
        model = onnx.load(path, load_external_data=False)
        onnx.checker.check_model(model)
    except (DecodeError, onnx.checker.ValidationError, ValueError) as error:
        raise EngineFailure("invalid_model", f"not a valid ONNX model: {str(error)[:1500]}") from error
    converters.install()
    model = plugins.prepare(model)
    constants.use_tensors(model.graph, onnx.helper)
    counted = operators.counts(model.graph, _DOMAINS)
    operators.refuse_unknown(counted, _known(model))
    speedups.use_threads(1)
    try:
        module, params = relay.frontend.from_onnx(model, freeze_params=True)
    except EngineFailure:
        raise
    except Exception as error:
        # The converters raise anything from AssertionError to TVMError.
        raise faults.failure("import_failed", "TVM cannot import the model", error) from error
    return Imported(
        module=module,
        params=params,
        inputs=tuple(str(parameter.name_hint) for parameter in module["main"].params),
        outputs=tuple(value.name for value in model.graph.output),
        operators=counted,
    )


def _known(model: onnx.ModelProto) -> set[str]:
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    # The private map is the only list of what the importer converts.
    return {*frontend._get_convert_map(opset), *frontend._identity_list, "Constant"}
