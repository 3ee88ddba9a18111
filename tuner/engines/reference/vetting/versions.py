"""The versions that a model says it was written for."""

from __future__ import annotations

import onnx

from tuner.engines.reference.vetting.refusal import refuse, shown

_STANDARD = ("", "ai.onnx")
_HIGHEST = 1_000
"""Of a domain that is somebody's own."""


def check(model: onnx.ModelProto) -> None:
    """Raises EngineFailure ``invalid_model``."""
    if not 1 <= model.ir_version <= onnx.IR_VERSION:
        raise refuse("ir_version", f"its IR version is {model.ir_version}; versions up to {onnx.IR_VERSION} are known")
    seen: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain in _STANDARD else entry.domain
        newest = onnx.defs.onnx_opset_version() if domain == "" else _HIGHEST
        if not 1 <= entry.version <= newest:
            kind = f"operator set {shown(domain)}" if domain else "operator set"
            raise refuse("opset_version", f"its {kind} is {entry.version}; versions up to {newest} are known")
        if seen.setdefault(domain, entry.version) != entry.version:
            raise refuse("opset_version", f"it imports domain {shown(domain)} in two versions")
