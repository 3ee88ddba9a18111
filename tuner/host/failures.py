"""What an engine's own error codes mean to a caller."""

from __future__ import annotations

from domain import errors

CODES: dict[str, type[errors.TunesmithError]] = {
    "invalid_model": errors.InvalidModel,
    "import_failed": errors.InvalidModel,
    "run_failed": errors.InvalidModel,
    "unsupported_operators": errors.UnsupportedOperators,
    "unsupported_dtype": errors.InvalidModel,
    "shape_required": errors.ShapeRequired,
    "shape_mismatch": errors.ShapeMismatch,
    "invalid_inputs": errors.InvalidInputs,
    "invalid_bundle": errors.InvalidBundle,
    "unknown_target": errors.UnknownTarget,
    "unsupported_target": errors.UnsupportedTarget,
    "invalid_option": errors.InvalidOption,
    "cross_compiler_missing": errors.CrossCompilerMissing,
    "compiler_missing": errors.CompilerMissing,
    "tracker_unreachable": errors.TrackerUnreachable,
    "no_device": errors.NoDevice,
    "device_lost": errors.DeviceLost,
}
"""Codes by which an engine says that what the caller sent, or something around it, is wrong; any other is the
engine's own failure."""


def explain(error: errors.EngineRequestFailed) -> errors.TunesmithError:
    """The error to show instead: the caller's, when it is the caller's; else ``error`` itself."""
    kind = CODES.get(error.engine_code)
    return error if kind is None else kind(error.message, hint=error.hint, details=error.details)
