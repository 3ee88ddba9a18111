"""Translation of engine error codes to errors of the caller."""

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
"""Errors for codes of problems that the caller or the environment caused; other codes are failures of the engine."""


def explain(error: errors.EngineRequestFailed) -> errors.TunesmithError:
    """Return the caller's error for the engine's code, if there is one, else ``error`` itself."""
    kind = CODES.get(error.engine_code)
    return error if kind is None else kind(error.message, hint=error.hint, details=error.details)
