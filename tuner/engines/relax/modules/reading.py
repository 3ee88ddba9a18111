"""Conversion of IRModule JSON to a Relax module whose ``main`` calls the tensor function, as in any model."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from tvm import ir, relax, tirx

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relax import importing as onnx_importing
from tuner.engines.relax.importing import Imported
from tuner.engines.relax.modules import admission, walking
from tuner.engines.relax.modules.admission import refused
from tuner.engines.relax.modules.walking import Access, Walk
from tuner.engines.runtime import environment, importing

SUFFIX = ".json"
_ATTRIBUTES = frozenset({"global_symbol", "tirx.noalias", "tir.noalias", "s_tir", "op_pattern", "layout_free_buffers"})
"""Attributes allowed on the function; all are set anew."""
_ENTRY = "main"
_NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def load(path: str) -> Imported:
    """Return the model of a prepared file: an IRModule if its suffix is ``.json``, else ONNX.

    Raises EngineFailure ``invalid_model``, and as ``importing.load``.
    """
    return load_module(path) if path.endswith(SUFFIX) else onnx_importing.load(path)


def inspect(path: str) -> Json:
    """Return the facts that the onnx engine's ``inspect`` returns for ONNX files; opset and weights are 0."""
    found = _read(path)
    return {**_facts(found), "opset": 0, "ir_version": 0, "parameters": 0}


def prepare(path: str, out_path: str) -> Json:
    """Prepare a module as the onnx engine's ``prepare`` does; its shapes are static and there is nothing to fold.

    It is not run, so its buffers count with their limit.
    """
    found = _read(path)
    shutil.copyfile(path, out_path)
    return {**_facts(found), "folded": False, "memory_bytes": environment.peak_bytes() + walking.MOST_BYTES}


def _facts(found: Imported) -> Json:
    return {"inputs": list(found.inputs), "outputs": list(found.outputs), "operators": found.operators}


def _read(path: str) -> Imported:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise EngineFailure("invalid_model", f"cannot read the model: {error.strerror}") from error
    text = admission.screen(content)
    try:
        name, function = _only_function(ir.load_json(text))
        return _wrapped(name, function, Walk().function(function))
    except EngineFailure:
        raise
    except Exception as error:
        # TVM raises anything for objects with invalid fields.
        lines = [line for line in str(error).splitlines() if line.strip()] or [""]
        raise refused(f"TVM cannot read it: {type(error).__name__}: {lines[-1][:300]}") from error


load_module = importing.by_file(_read, kept=2)


def _only_function(module: Any) -> tuple[str, Any]:
    functions = [(str(variable.name_hint), function) for variable, function in module.functions_items()]
    if len(functions) != 1 or not isinstance(functions[0][1], tirx.PrimFunc):
        raise refused(f"it has {len(functions)} functions; it must have one tensor function (tirx.PrimFunc)")
    name, function = functions[0]
    strange = sorted({str(key) for key, _ in function.attrs.items()} - _ATTRIBUTES) if function.attrs else []
    if strange:
        raise refused(f"its function has the attribute {strange[0]}, which is not supported")
    return name, function


def _wrapped(name: str, function: Any, accesses: list[Access]) -> Imported:
    written = [access.written for access in accesses]
    count = sum(written)
    if not count or count == len(written) or not all(written[-count:]):
        raise refused("its last parameters must be the buffers that it writes, after at least one that it reads")
    names = _names([str(parameter.name) for parameter in function.params])
    specs = [_spec(each, access) for each, access in zip(names, accesses, strict=True)]
    # Set every attribute and the name anew: an uploaded symbol name could clash with one of the host's.
    plain = tirx.PrimFunc(function.params, function.body, attrs=_attributes())
    inputs, outputs = specs[:-count], specs[-count:]
    return Imported(
        module=_calling(plain, inputs, outputs, name),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        operators={name: 1},
    )


def _attributes() -> Any:
    return ir.make_node("ir.DictAttrs", **{"tirx.noalias": True, "s_tir": True})


def _names(given: list[str]) -> list[str]:
    """Return a unique name for each parameter; TVM requires neither names nor uniqueness."""
    found: list[str] = []
    for place, name in enumerate(given):
        plain = name if _NAMED.fullmatch(name) else f"arg{place}"
        found.append(f"{plain}_{place}" if plain in found else plain)
    if len(set(found)) < len(found):
        raise refused("its parameters have ambiguous names")
    return found


def _spec(name: str, access: Access) -> Json:
    return {"name": name, "dtype": access.dtype, "shape": list(access.shape)}


def _calling(function: Any, inputs: list[Json], outputs: list[Json], name: str) -> Any:
    builder = relax.BlockBuilder()
    label = "workload" if name == _ENTRY or not _NAMED.fullmatch(name) else f"workload_{name}"
    variable = builder.add_func(function, label)
    parameters = [relax.Var(spec["name"], _tensor(spec)) for spec in inputs]
    with builder.function(_ENTRY, parameters):
        with builder.dataflow():
            called = relax.call_tir(variable, parameters, [_tensor(spec) for spec in outputs])
            result = builder.emit_output(called)
        builder.emit_func_output(result)
    return builder.finalize()


def _tensor(spec: Json) -> Any:
    return relax.TensorType(tuple(spec["shape"]), spec["dtype"])
